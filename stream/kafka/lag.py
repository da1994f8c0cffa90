"""Lag: how far a group is behind, in records and in time. It joins nothing, commits nothing and disturbs nobody."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from stream.config import Config
from stream.events import Record, cloud_attributes, event_id
from stream.kafka.admin import REACH_TIMEOUT_S, admin, unreachable
from stream.kafka.firsts import first_messages, looker
from stream.kafka.reader import committed
from stream.offsets import Partition

# What is said of one partition, by a broker that answers.
_LEADERLESS = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
PATIENCE_S = 4.0  # for the records whose ages are asked for, of all groups together
LATEST_S = 253402300799.0  # of a datetime


@dataclass(frozen=True, slots=True)
class NextRecord:
    """The record at a committed offset: the first that the group has not finished. `time`: when the broker took it."""

    offset: int
    key: bytes | None
    event_id: UUID
    time: datetime


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group: its committed offset, the end, and how far the first is behind the second.

    `lag` counts what is still in the log. `lag_seconds`: the age of the next record, `next`. Both are None where the
    group has committed nothing in this topic; the latter also where the record did not come in time.
    """

    committed: int | None
    end: int
    lag: int | None = None
    lag_seconds: float | None = None
    next: NextRecord | None = None


def lags(config: Config, groups: Mapping[str, Collection[str]]) -> dict[str, dict[Partition, PartitionLag]]:
    """Of each group, given with its topics, all partitions in order. A topic that is not there has none.

    Raises Unreachable where no broker answers.
    """
    deadline = time.monotonic() + PATIENCE_S
    with _client(config) as consumer:
        places, lows = _places(config, consumer, groups)
        found = {}
        for group, of_group in places.items():
            nexts = {p: max(one.committed or 0, lows[p]) for p, one in of_group.items() if one.lag}
            records = _records(config, consumer, nexts, deadline)
            found[group] = {
                partition: _aged(one, records.get(partition), partition in records)
                for partition, one in of_group.items()
            }
        return found


def offsets(
    config: Config, groups: Mapping[str, Collection[str]]
) -> dict[str, dict[Partition, PartitionLag]]:
    """The same without ages, which is quick. Raises Unreachable."""
    with _client(config) as consumer:
        return _places(config, consumer, groups)[0]


def lags_behind(config: Config, offsets: Mapping[Partition, int]) -> dict[Partition, PartitionLag]:
    """How far each of these offsets is behind its partition's end, as `lags` has it; the group is not asked.

    Without the partitions that nobody leads now. Raises Unreachable where no broker answers.
    """
    deadline = time.monotonic() + PATIENCE_S
    with _client(config) as consumer:
        found, nexts = {}, {}
        for partition, offset in offsets.items():
            asked = TopicPartition(config.prefix + partition[0], partition[1])
            try:
                low, end = consumer.get_watermark_offsets(asked, timeout=REACH_TIMEOUT_S, cached=False)
            except KafkaException as error:
                if error.args[0].code() in _LEADERLESS:
                    continue
                raise
            found[partition] = behind(partition, offsets, low, end)
            if found[partition].lag:
                nexts[partition] = max(offset, low)
        records = _records(config, consumer, nexts, deadline)
        return {
            partition: _aged(one, records.get(partition), partition in records)
            for partition, one in found.items()
        }


def behind(partition: Partition, offsets: Mapping[Partition, int], low: int, end: int) -> PartitionLag:
    """A partition's lag without its age, by the group's committed offsets. Pure.

    What retention took is not counted: nobody can read it any more. A partition without an offset in a topic that has
    some is new: the group begins at its first record.
    """
    offset = offsets.get(partition)
    if offset is None and not any(topic == partition[0] for topic, _ in offsets):
        return PartitionLag(None, end)
    return PartitionLag(offset, end, max(0, end - max(offset or 0, low)))


@contextmanager
def _client(config: Config) -> Iterator[Consumer]:
    """Raises Unreachable for what the client raises."""
    consumer = looker(config, "stream-lag")
    try:
        yield consumer
    except KafkaException as error:
        raise unreachable(config, error) from None
    finally:
        consumer.close()


def _places(
    config: Config, consumer: Consumer, groups: Mapping[str, Collection[str]]
) -> tuple[dict[str, dict[Partition, PartitionLag]], dict[Partition, int]]:
    """How far each group is, and the first offsets of the logs."""
    client = admin(config)
    # The committed offsets first: the ends, read after them, are never below.
    committed_of = {group: committed(config, group, client) for group in groups}
    bounds = _bounds(config, client, consumer, {topic for topics in groups.values() for topic in topics})
    places = {
        group: {
            partition: behind(partition, committed_of[group], low, end)
            for partition, (low, end) in bounds.items()
            if partition[0] in topics
        }
        for group, topics in groups.items()
    }
    return places, {partition: low for partition, (low, _) in bounds.items()}


def _bounds(
    config: Config, client: AdminClient, consumer: Consumer, topics: Collection[str]
) -> dict[Partition, tuple[int, int]]:
    """First offset and end of every partition of these topics, in order."""
    known = client.list_topics(timeout=REACH_TIMEOUT_S).topics
    found = {}
    for topic in sorted(topics):
        there = known.get(config.prefix + topic)
        for number in sorted(there.partitions) if there is not None and there.error is None else ():
            asked = TopicPartition(config.prefix + topic, number)
            low, high = consumer.get_watermark_offsets(asked, timeout=REACH_TIMEOUT_S, cached=False)
            found[topic, number] = (low, high)
    return found


def _records(
    config: Config, consumer: Consumer, nexts: Mapping[Partition, int], deadline: float
) -> dict[Partition, NextRecord | None]:
    """The records at these offsets; None where no record is left, but marks of transactions."""
    return {
        partition: None if message is None else _next_record(message, partition[0])
        for partition, message in first_messages(config, consumer, nexts, deadline).items()
    }


def _next_record(message: Message, topic: str) -> NextRecord:
    key = message.key()
    try:
        headers = message.headers() or []
        text, _, _ = cloud_attributes(headers)  # type: ignore[arg-type]  # values are bytes or None
    except UnicodeDecodeError:  # no event of ours, but it may stand in the way of some
        text = None
    bytes_of = key.encode() if isinstance(key, str) else key
    stamp = message.timestamp()[1]
    record = Record(topic, message.partition() or 0, message.offset() or 0, bytes_of, None, (), stamp)
    time = datetime.fromtimestamp(min(max(stamp, 0) / 1000, LATEST_S), UTC)
    return NextRecord(record.offset, bytes_of, event_id(record, text), time)


def _aged(one: PartitionLag, record: NextRecord | None, came: bool) -> PartitionLag:
    if one.lag == 0 or (came and record is None):
        return replace(one, lag_seconds=0.0)
    if record is None:
        return one
    return replace(one, lag_seconds=max(0.0, time.time() - record.time.timestamp()), next=record)
