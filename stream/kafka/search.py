"""Search: the records of one key, read past the groups. It commits nothing and disturbs nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from stream.config import Config
from stream.errors import StreamError
from stream.events import Record
from stream.kafka.admin import REACH_TIMEOUT_S, partition_counts, unreachable
from stream.kafka.settings import client_settings
from stream.keys import partition_of

# Messages a call: they are read at several hundred thousand a second, and the call does not return before.
AT_ONCE = 5000
WAIT_S = 0.2

# Errors of a moment: a topic just made has no leader yet, a broker restarts.
_PASSING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
    }
)

Progress = Callable[[int, int], None]


@dataclass
class Scan:
    """How far the key's partition of one topic was read: from `first` up to `reached`, of `end` when it began."""

    topic: str
    partition: int
    first: int
    reached: int
    end: int

    @property
    def complete(self) -> bool:
        return self.reached >= self.end


@dataclass(frozen=True)
class Found:
    """The key's records, each topic's in order; `missing` topics are not on the cluster."""

    records: Sequence[Record]
    scans: Sequence[Scan]
    missing: Sequence[str]


def records_of_key(
    config: Config, key: bytes, topics: Sequence[str], *, seconds: float, progress: Progress | None = None
) -> Found:
    """Read the key's partition of each topic up to the ends found at the start, for `seconds` at most.

    A topic whose partitions were grown has a key's older records in another partition: they are not found.
    `progress` gets the number of offsets passed, and of all. Raises Unreachable where no broker answers,
    StreamError where a topic cannot be read.
    """
    counts = partition_counts(config)
    there = [topic for topic in topics if topic in counts]
    consumer = Consumer(
        client_settings(config, "stream-search")
        | {
            "group.id": config.prefix + "stream-search",  # the client asks for one; it is never joined
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",  # retention may take the first records meanwhile
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 10,  # a full queue is empty again soon: do not wait a second
        }
    )
    try:
        scans = [_scan(config, consumer, topic, partition_of(key, counts[topic])) for topic in there]
        records = _read(consumer, config.prefix, key, scans, time.monotonic() + seconds, progress)
    finally:
        consumer.close()
    return Found(records, scans, [topic for topic in topics if topic not in counts])


def _scan(config: Config, consumer: Consumer, topic: str, partition: int) -> Scan:
    asked = TopicPartition(config.prefix + topic, partition)
    deadline = time.monotonic() + REACH_TIMEOUT_S
    while True:
        try:
            low, high = consumer.get_watermark_offsets(asked, timeout=REACH_TIMEOUT_S, cached=False)
            return Scan(topic, partition, low, low, high)
        except KafkaException as error:
            if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                raise unreachable(config, error) from None
        time.sleep(0.05)


def _read(
    consumer: Consumer,
    prefix: str,
    key: bytes,
    scans: Sequence[Scan],
    deadline: float,
    progress: Progress | None,
) -> list[Record]:
    left = {prefix + scan.topic: scan for scan in scans if not scan.complete}
    consumer.assign([TopicPartition(topic, scan.partition, scan.first) for topic, scan in left.items()])
    records = []
    while left and time.monotonic() < deadline:
        for message in consumer.consume(AT_ONCE, WAIT_S):
            scan = left.get(message.topic() or "")
            if scan is None:
                continue  # behind the end
            if message.error() is None and message.key() == key:
                records.append(_record(scan, message))
            if _passed(message, scan):
                del left[prefix + scan.topic]
                consumer.incremental_unassign([TopicPartition(prefix + scan.topic, scan.partition)])
        if progress is not None:
            progress(
                sum(scan.reached - scan.first for scan in scans), sum(scan.end - scan.first for scan in scans)
            )
    return records


def _passed(message: Message, scan: Scan) -> bool:
    """Move the scan on; true at its end. The end is met as a record, or as the end of the log behind a gap.

    An end of the log below the scan's is that of an open transaction: what follows it comes later.
    """
    error = message.error()
    if error is None:
        scan.reached = min(_offset(message) + 1, scan.end)
    elif error.code() == KafkaError._PARTITION_EOF:
        scan.reached = min(max(scan.reached, _offset(message)), scan.end)
    elif error.code() not in _PASSING:
        raise StreamError(f"topic {scan.topic} cannot be read: {error.str()}")
    return scan.complete


def _record(scan: Scan, message: Message) -> Record:
    try:
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    except UnicodeDecodeError:  # a header's name: no event of ours
        headers = []
    return Record(
        scan.topic,
        scan.partition,
        _offset(message),
        message.key(),  # bytes: no deserialiser is set
        message.value(),
        headers,
        message.timestamp()[1],
    )


def _offset(message: Message) -> int:
    return cast("int", message.offset())  # None only where there is an error
