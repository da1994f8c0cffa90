"""Assignment: what stands between being given a partition and its first record.

Where to start is looked up at the broker and in the database, decided by one table (starts.py), told to the client,
and committed, before anything is dispatched; only then does the partition count as seen. All of it happens inside
the client's callback, so no record can slip in between.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

import psycopg
import structlog

from stream.config import Config
from stream.epochs import Epochs
from stream.errors import CheckFailed, Refused, Unreachable
from stream.groups import ConsumerGroup
from stream.groupstate import GroupState, Memory
from stream.kafka import admin
from stream.kafka.consumer import GROUP_SETTINGS, GroupConsumer, KafkaException
from stream.kafka.positions import record_times
from stream.offsets import Partition
from stream.starts import Place, Start, Stop, adopt_command, resolve, resolve_retries
from stream.topics import dlq_topic, retry_topic

log = structlog.get_logger("stream.assignment")

T = TypeVar("T")

PAUSE_FIRST_S, PAUSE_MOST_S = 0.2, 5.0


class Stopping(Exception):
    """The group was told to stop while it waited for broker or database."""


class Assignment:
    """Opens partitions for one group in one process. Owned by the processor's thread.

    A broker or database that does not answer is waited for; `stopping` ends the waiting with Stopping.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        config: Config,
        consumer: GroupConsumer,
        state: GroupState,
        stopping: threading.Event,
        epochs: Epochs,
    ) -> None:
        self._group = group
        self._config = config
        self._consumer = consumer
        self._state = state
        self._stopping = stopping
        self._epochs = epochs
        self.history: Mapping[
            Partition, int
        ] = {}  # ends of the logs at the group's first start, once prepared
        self._retry_topic = retry_topic(group.name)
        self.waited_at = 0.0  # monotonic: when a broker or database was last asked in vain
        self._failing_topics = (self._retry_topic, dlq_topic(group.name))

    def prepare(self) -> dict[Partition, int]:
        """Before joining: the group's broker settings and, at its first start, its beginning, fixed for all its
        partitions at once. Returns the end of every partition at this moment.

        Raises CheckFailed where a topic is missing.
        """
        refusal = self.patiently(
            lambda: admin.set_group_config(self._config, self._group.name, GROUP_SETTINGS)
        )
        if refusal is not None:
            log.warning(
                "group.settings_refused",
                group=self._group.name,
                reason=refusal,
                meaning="a killed worker's keys may take as long to go on as the broker's own settings say",
            )
        bounds = self.patiently(self._bounds)
        memory = self.patiently(self._state.load)
        unmet = [topic for topic in self._group.topics if not memory.has_met(topic)]
        if unmet:
            memory = self._begin(unmet, bounds)
        self.history = memory.history
        limit = self.patiently(lambda: admin.most_record_bytes(self._config, self._failing_topics))
        self.patiently(lambda: self._state.set_limits(limit, self._config.retries.nudge_first_s))
        return {partition: high for partition, (_, high) in bounds.items()}

    def open(self, partitions: list[Partition]) -> tuple[dict[Partition, int], dict[Partition, int]]:
        """Start on partitions just assigned, or on homeless ones; returns where, and the ends of those whose last
        owner died with them.

        Raises Refused where the table says stop.
        """
        starts, ends = self.patiently(lambda: self._resolve(partitions))
        self._consumer.start({partition: start.offset for partition, start in starts.items()})
        unreleased = self.patiently(lambda: self._note(starts))
        return (
            {partition: start.offset for partition, start in starts.items()},
            {p: ends[p] for p in unreleased if ends[p] > starts[p].offset},
        )

    def _begin(self, topics: list[str], bounds: Mapping[Partition, tuple[int, int]]) -> Memory:
        starts = self.patiently(
            lambda: {
                partition: self._beginning(partition, found)
                for partition, found in bounds.items()
                if partition[0] in topics
            }
        )
        ids = self.patiently(lambda: admin.topic_ids(self._config, topics))
        ends = {partition: bounds[partition][1] for partition in starts}
        memory = self.patiently(lambda: self._state.begin(_policy(self._group), starts, ends, ids))
        ahead = {p: offset for p, offset in memory.planned.items() if p in starts and bounds[p][1] > offset}
        since = min(record_times(self._config, ahead).values(), default=None) if ahead else None
        log.info(
            "group.first_start",
            group=self._group.name,
            topics=topics,
            start=_policy(self._group),
            will_act_on=sum(bounds[p][1] - offset for p, offset in ahead.items()),
            since=None if since is None else since.isoformat(timespec="seconds"),
            catch_up_rate=self._group.catch_up_rate,
        )
        return memory

    def _beginning(self, partition: Partition, bounds: tuple[int, int]) -> int:
        low, high = bounds
        if isinstance(self._group.start, datetime):
            return self._consumer.offset_at(partition, self._group.start)
        return low if self._group.start == "beginning" else high

    def _bounds(self) -> dict[Partition, tuple[int, int]]:
        counts = admin.partition_counts(self._config)
        missing = [topic for topic in (*self._group.topics, *self._failing_topics) if topic not in counts]
        if missing:
            what = f"topic {missing[0]} does" if len(missing) == 1 else f"topics {', '.join(missing)} do"
            raise CheckFailed(f"group {self._group.name!r}: {what} not exist", hint="stream migrate")
        return {
            (topic, p): self._consumer.bounds((topic, p))
            for topic in (*self._group.topics, self._retry_topic)
            for p in range(counts[topic])
        }

    def _resolve(self, partitions: list[Partition]) -> tuple[dict[Partition, Start], dict[Partition, int]]:
        """Where to start, and the ends of the logs: once they are read, each look at one waits behind a fetch, for as
        long as the broker waits for records."""
        memory = self._state.load()
        self._epochs.learn(memory.reapplied)  # ranges change only while nobody reads
        committed = self._consumer.committed(partitions)
        ids = admin.topic_ids(self._config, {topic for topic, _ in partitions}) if partitions else {}
        bounds = {partition: self._consumer.bounds(partition) for partition in partitions}
        starts = {}
        for partition in partitions:
            if partition[0] == self._retry_topic:
                starts[partition] = resolve_retries(committed[partition], *bounds[partition])
                continue
            place = self._place(partition, committed[partition], bounds[partition], memory, ids)
            decision = resolve(place)
            topic, number = partition
            if isinstance(decision, Stop):
                raise Refused(
                    f"group {self._group.name!r} does not start on {topic}[{number}]: {decision.reason}",
                    hint=_way_out(self._group.name, topic, decision),
                )
            if decision.note is not None:
                log.warning(
                    "partition.start",
                    group=self._group.name,
                    partition=f"{topic}[{number}]",
                    offset=decision.offset,
                    note=decision.note,
                    gap=decision.gap,
                )
            starts[partition] = decision
        return starts, {partition: high for partition, (_, high) in bounds.items()}

    def _place(
        self,
        partition: Partition,
        committed: int | None,
        bounds: tuple[int, int],
        memory: Memory,
        ids: Mapping[str, str],
    ) -> Place:
        low, high = bounds
        seen = partition in memory.seen
        pruned = memory.ledger_pruned_before
        return Place(
            committed=committed,
            low=low,
            high=high,
            planned=memory.planned.get(partition),
            seen=seen,
            recreated=_differ(ids.get(partition[0]), memory.topic_ids.get(partition[0])),
            # Only asked where it matters: is the log's first record younger than the oldest ledger row?
            ledger_covers=committed is not None
            or not seen
            or pruned is None
            or self._consumer.offset_at(partition, pruned) <= low,
        )

    def _note(self, starts: Mapping[Partition, Start]) -> set[Partition]:
        self._consumer.commit_now({partition: start.offset for partition, start in starts.items()})
        gaps = {partition: start.gap for partition, start in starts.items() if start.gap is not None}
        grown = [partition for partition, start in starts.items() if start.grown]
        return self._state.opened(starts, gaps, grown)

    def patiently(self, ask: Callable[[], T]) -> T:
        """Ask until broker and database answer."""
        pause = PAUSE_FIRST_S
        while True:
            try:
                return ask()
            except (KafkaException, Unreachable, psycopg.OperationalError) as error:
                log.warning("group.waiting", group=self._group.name, error=str(error), hint="stream doctor")
            self.waited_at = time.monotonic()
            if self._stopping.wait(pause):
                raise Stopping
            pause = min(pause * 2, PAUSE_MOST_S)


def _differ(id: str | None, known: str | None) -> bool:
    return id is not None and known is not None and id != known


def _way_out(group: str, topic: str, stop: Stop) -> str:
    """The command by which a person decides where to go on."""
    if stop.recreated:
        return adopt_command(group, topic)
    return f"stream rewind --group {shlex.join([group, '--topic', topic])} --to-earliest"


def _policy(group: ConsumerGroup) -> str:
    return group.start.isoformat() if isinstance(group.start, datetime) else group.start
