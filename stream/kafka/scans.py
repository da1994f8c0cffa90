"""Scans: the records of some ranges of partitions, read past the groups. It commits nothing and disturbs nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from stream.config import Config
from stream.errors import StreamError
from stream.events import Record
from stream.kafka.admin import REACH_TIMEOUT_S, unreachable
from stream.kafka.settings import looking_settings

T = TypeVar("T")

# Messages a call: they are read at several hundred thousand a second.
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
        KafkaError._TIMED_OUT,
    }
)

# What stands for headers of which a name is no UTF-8: the client gives none of them.
UNREADABLE: Sequence[tuple[str, bytes | None]] = [("(headers that are no UTF-8)", None)]


@dataclass
class Scan:
    """How far a partition was read: from `first` up to `reached`, of `end`; without an end it goes on for ever."""

    topic: str
    partition: int
    first: int
    reached: int
    end: int | None

    @property
    def complete(self) -> bool:
        return self.end is not None and self.reached >= self.end

    @property
    def position(self) -> str:
        """What comes next, as the logs name a record: `orders[3]@1207`."""
        return f"{self.topic}[{self.partition}]@{self.reached}"


class Scanner:
    """Reads scans. Owned by one thread. Topic names are logical; records of open and of aborted transactions are
    gaps. Raises Unreachable where no broker answers, StreamError where a topic cannot be read."""

    def __init__(self, config: Config, name: str) -> None:
        self._config = config
        self._consumer = Consumer(
            looking_settings(config, name)
            | {"fetch.wait.max.ms": 20}  # a look at what has ended holds up the next partition for so long
        )

    def __enter__(self) -> Scanner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def whole(self, topic: str, partition: int) -> Scan:
        """All of a partition up to the end it has now."""
        asked = self._physical(topic, partition)
        low, high = self._asked(
            lambda: self._consumer.get_watermark_offsets(asked, timeout=REACH_TIMEOUT_S, cached=False)
        )
        return Scan(topic, partition, low, low, high)

    def offset_at(self, topic: str, partition: int, moment: datetime) -> int | None:
        """The first offset whose record is not older; None where there is none."""
        asked = self._physical(topic, partition, max(0, int(moment.timestamp() * 1000)))
        [found] = self._asked(lambda: self._consumer.offsets_for_times([asked], timeout=REACH_TIMEOUT_S))
        if found.error is not None:
            raise StreamError(f"topic {topic} cannot be read: {found.error.str()}")
        return found.offset if found.offset >= 0 else None

    def read(
        self, scans: Iterable[Scan], go_on: Callable[[], bool], *, key: bytes | None = None
    ) -> Iterator[Record]:
        """The records of the scans, those of a partition in order; with a `key`, its own only. `go_on` is asked now
        and then; false ends it, and `reached` of the scans says where."""
        # Millions of messages are looked at: a record is made of those only that are asked for.
        for scan, message in self._messages(scans, go_on):
            if key is None or message.key() == key:
                yield _record(scan, message)

    def _messages(self, scans: Iterable[Scan], go_on: Callable[[], bool]) -> Iterator[tuple[Scan, Message]]:
        left = {(self._config.prefix + s.topic, s.partition): s for s in scans if not s.complete}
        self._consumer.assign([self._physical(s.topic, s.partition, s.reached) for s in left.values()])
        while left and go_on():
            first = self._consumer.poll(WAIT_S)
            if first is None:
                continue
            for message in (first, *self._consumer.consume(AT_ONCE - 1, 0)):
                scan = left.get((message.topic() or "", message.partition() or 0))
                if scan is None:
                    continue  # behind the end
                end, offset = scan.end, message.offset() or 0
                if message.error() is None and (end is None or offset < end):
                    scan.reached = offset + 1
                    yield scan, message
                else:
                    _pass(message, scan)
                if end is not None and scan.reached >= end:
                    del left[self._config.prefix + scan.topic, scan.partition]
                    self._consumer.incremental_unassign([self._physical(scan.topic, scan.partition)])

    def _physical(self, topic: str, partition: int, offset: int = -1001) -> TopicPartition:
        return TopicPartition(self._config.prefix + topic, partition, offset)

    def _asked(self, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + REACH_TIMEOUT_S
        while True:
            try:
                return ask()
            except KafkaException as error:
                if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                    raise unreachable(self._config, error) from None
            time.sleep(0.05)


def _record(scan: Scan, message: Message) -> Record:
    try:
        headers = cast("Sequence[tuple[str, bytes | None]]", message.headers() or [])
    except UnicodeDecodeError:
        headers = UNREADABLE
    return Record(
        scan.topic,
        scan.partition,
        message.offset() or 0,
        message.key(),  # bytes: no deserialiser is set
        message.value(),
        headers,
        message.timestamp()[1],
    )


def _pass(message: Message, scan: Scan) -> None:
    """Move the scan on over what is no record of it: the end of the log, met behind a gap, or a record behind its
    own end.

    An end of the log below the scan's is that of an open transaction: what follows it comes later.
    """
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        reached = max(scan.reached, message.offset() or 0)
        scan.reached = reached if scan.end is None else min(reached, scan.end)
    elif error.code() not in _PASSING:
        raise StreamError(f"topic {scan.topic} cannot be read: {error.str()}")
