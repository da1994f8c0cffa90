"""One member of a consumer group: records in, offsets out, partitions given and taken.

What the client gets wrong, or leaves to its users, is met here (found with confluent-kafka 2.16):
a bare `consume(n, t)` waits the whole of `t` for `n` messages; an exception in a callback loses messages; a paused
partition stays paused when it comes back; `assign()` is refused under the consumer protocol, silently; a synchronous
commit waits as long as a hung broker hangs; partitions are given even while it closes, and no question about them is
answered then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from stream.config import Config
from stream.errors import StreamError
from stream.events import Record
from stream.kafka.settings import ErrorLog, client_settings
from stream.offsets import Partition

__all__ = ["GROUP_SETTINGS", "Fetched", "GroupConsumer", "KafkaException", "Listener"]

REQUEST_TIMEOUT_S = 5.0
CLIENT = "stream-"  # a member's client id is this and the name of its worker
# A killed member's partitions go on elsewhere after the session timeout; the broker's defaults are 45 s and 5 s.
GROUP_SETTINGS = {"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "1000"}
# Commits that came too late, or that belong to partitions meanwhile lost: the newest value goes next time.
_STALE = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_TOPIC_OR_PART,  # deleted, and its offsets with it
        KafkaError._NO_OFFSET,
        KafkaError._STATE,
    }
)
_FORBIDDEN = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)


class Listener(Protocol):
    """What a group is told, inside `fetch` and `close`, in the thread that calls them."""

    def assigned(self, partitions: list[Partition]) -> None:
        """They are ours: call `GroupConsumer.start` for them."""

    def revoked(self, partitions: list[Partition]) -> None:
        """They go to another member once this returns; offsets can still be committed."""

    def lost(self, partitions: list[Partition]) -> None:
        """They are another member's already."""

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """The broker has these offsets."""


@dataclass(slots=True)
class Fetched:
    """What one fetch brought. `ends`: partitions read to their end, and the offset of it (if asked for).
    `homeless`: partitions whose position is not in the log; they stay silent until started again."""

    records: list[Record] = field(default_factory=list)
    ends: list[tuple[Partition, int]] = field(default_factory=list)
    homeless: list[Partition] = field(default_factory=list)


class GroupConsumer:
    """Owned by one thread: the client admits one caller at a time, and a polling one starves all others.

    Topic names are logical; the prefix is put before them here. Raises KafkaException where the broker does not
    answer, StreamError once the client cannot go on.
    """

    def __init__(self, config: Config, group: str, worker: str, *, prefetch: int, ends: bool = False) -> None:
        self._prefix = config.prefix
        settings = client_settings(config, CLIENT + worker)
        self._errors: ErrorLog = settings["error_cb"]
        self._settings = settings | {
            "group.id": config.prefix + group,
            "group.protocol": "consumer",
            # Each topic's partitions are shared out by themselves. The broker's default counts partitions only: one of
            # two members was given all that is to be done, and the other the retry topic.
            "group.remote.assignor": "range",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # Where to start is our decision, always: see starts.py.
            "auto.offset.reset": "error",
            "enable.partition.eof": ends,
            # Partitions added to a topic are found within this time.
            "topic.metadata.refresh.interval.ms": 10000,
            "queued.min.messages": max(100, prefetch),
            "queued.max.messages.kbytes": 16384,
            "fetch.queue.backoff.ms": 10,  # the queue is small: do not wait a second once it was full
            "on_commit": self._on_commit,
        }
        self._consumer = Consumer(self._settings)
        self._open = True
        self._logical: dict[str, str] = {}
        self._listener: Listener | None = None
        self._raised: BaseException | None = None
        self.commits_under_way = 0

    def subscribe(self, topics: Iterable[str], listener: Listener) -> None:
        """Join the group; after `close`, with a new client."""
        if not self._open:
            self._consumer = Consumer(self._settings)
            self._open, self.commits_under_way = True, 0
        self._listener = listener
        self._consumer.subscribe(
            [self._prefix + topic for topic in topics],
            on_assign=lambda _, partitions: self._given(listener, partitions),
            on_revoke=lambda _, partitions: self._tell(listener.revoked, partitions),
            on_lost=lambda _, partitions: self._tell(listener.lost, partitions),
        )

    def fetch(self, limit: int, timeout: float) -> Fetched:
        """Up to `limit` records; waits up to `timeout` seconds for the first, never for more.

        Raises what a callback raised: an exception must not leave a callback of the client.
        """
        fetched = Fetched()
        first = self._consumer.poll(timeout)
        if first is not None:
            self._take(first, fetched)
            if limit > 1:
                for message in self._consumer.consume(limit - 1, 0):
                    self._take(message, fetched)
        self._raise()
        return fetched

    def start(self, starts: Mapping[Partition, int]) -> None:
        """Begin reading partitions just assigned, or homeless ones, at these offsets. Clears an old pause."""
        partitions = [self._physical(partition, offset) for partition, offset in starts.items()]
        if partitions:
            self._consumer.incremental_assign(partitions)
            self._consumer.resume(partitions)

    def stop(self, partitions: Iterable[Partition]) -> None:
        """End reading partitions that are ours: the client refuses to seek one whose fetch failed."""
        self._consumer.incremental_unassign([self._physical(partition) for partition in partitions])

    def pause(self) -> None:
        """Stop fetching; drops what was fetched ahead, so not for short."""
        self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        self._consumer.resume(self._consumer.assignment())

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Send offsets; what the broker took comes to `Listener.committed` in a later fetch."""
        if offsets:
            self._consumer.commit(offsets=self._offsets(offsets), asynchronous=True)
            self.commits_under_way += 1

    def commit_now(self, offsets: Mapping[Partition, int]) -> None:
        """Commit and wait for the broker. A member that was thrown out meanwhile commits nothing, silently."""
        if not offsets:
            return
        try:
            results = self._consumer.commit(offsets=self._offsets(offsets), asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _STALE:
                raise
            return
        self._note(results or [])

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int | None]:
        """The group's committed offset of each, None where there is none."""
        asked = [self._physical(partition) for partition in partitions]
        found = self._consumer.committed(asked, timeout=REQUEST_TIMEOUT_S) if asked else []
        for partition in found:
            if partition.error is not None:
                raise KafkaException(partition.error)
        return {self._partition(p): None if p.offset < 0 else p.offset for p in found}

    def bounds(self, partition: Partition) -> tuple[int, int]:
        """The first offset of the log, and its end."""
        low, high = self._consumer.get_watermark_offsets(
            self._physical(partition), timeout=REQUEST_TIMEOUT_S, cached=False
        )
        return low, high

    def offset_at(self, partition: Partition, time: datetime) -> int:
        """The first offset whose record is not older; the end where there is none."""
        asked = self._physical(partition, int(time.timestamp() * 1000))
        [found] = self._consumer.offsets_for_times([asked], timeout=REQUEST_TIMEOUT_S)
        if found.error is not None:
            raise KafkaException(found.error)
        return found.offset if found.offset >= 0 else self.bounds(partition)[1]

    def close(self) -> None:
        """Leave the group, if it is in it; the listener's `revoked` is called for what is assigned, also for what the
        client meets as given only now."""
        if self._open:
            self._open = False
            self._consumer.close()
        self._raise()

    # -- from the client ----------------------------------------------------------------------------------------

    def _take(self, message: Message, fetched: Fetched) -> None:
        error = message.error()
        if error is not None:
            self._failed(error, message, fetched)
            return
        topic = message.topic() or ""
        logical = self._logical.get(topic)
        if logical is None:
            logical = self._logical[topic] = topic.removeprefix(self._prefix)
        try:
            headers = message.headers() or ()
        except UnicodeDecodeError:  # a header's name: no event of ours, but its bytes may be
            headers = ()
        fetched.records.append(
            Record(
                logical,
                message.partition(),  # type: ignore[arg-type]  # never None in a message without error
                message.offset(),  # type: ignore[arg-type]  # the same
                message.key(),
                message.value(),
                headers,  # type: ignore[arg-type]  # values are bytes or None when they come from the broker
                message.timestamp()[1],
            )
        )

    def _failed(self, error: KafkaError, message: Message, fetched: Fetched) -> None:
        code = error.code()
        partition = ((message.topic() or "").removeprefix(self._prefix), message.partition() or 0)
        if code == KafkaError._PARTITION_EOF:
            fetched.ends.append((partition, message.offset() or 0))
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            fetched.homeless.append(partition)
        elif code == KafkaError._FATAL or error.fatal() or code in _FORBIDDEN:
            self._raised = self._raised or StreamError(f"Kafka does not let this member go on: {error.str()}")
        else:
            self._errors(error)

    def _given(self, listener: Listener, partitions: list[TopicPartition]) -> None:
        """What comes while the client closes is not opened: asked for its offsets, it answers no more."""
        if self._open:
            self._tell(listener.assigned, partitions)

    def _tell(self, callback: Callable[[list[Partition]], None], partitions: list[TopicPartition]) -> None:
        """Call back, keeping what is raised for `fetch` and `close`: an exception here would lose messages."""
        try:
            callback([self._partition(partition) for partition in partitions])
        except BaseException as error:  # noqa: BLE001  # raised again outside of the client
            self._raised = self._raised or error

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self.commits_under_way = max(0, self.commits_under_way - 1)
        try:
            if error is None:
                self._note(partitions)
            elif error.code() not in _STALE:
                self._errors(error)
        except BaseException as raised:  # noqa: BLE001  # as above
            self._raised = self._raised or raised

    def _note(self, results: Iterable[TopicPartition]) -> None:
        taken = {self._partition(p): p.offset for p in results if p.error is None and p.offset >= 0}
        for result in results:
            if result.error is not None and result.error.code() not in _STALE:
                self._errors(result.error)
        if self._listener is not None and taken:
            self._listener.committed(taken)

    def _raise(self) -> None:
        if self._errors.fatal is not None and self._raised is None:
            self._raised = StreamError(f"Kafka does not let this member go on: {self._errors.fatal.str()}")
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised

    def _offsets(self, offsets: Mapping[Partition, int]) -> list[TopicPartition]:
        return [self._physical(partition, offset) for partition, offset in offsets.items()]

    def _physical(self, partition: Partition, offset: int = OFFSET_INVALID) -> TopicPartition:
        return TopicPartition(self._prefix + partition[0], partition[1], offset)

    def _partition(self, partition: TopicPartition) -> Partition:
        return (partition.topic.removeprefix(self._prefix), partition.partition)
