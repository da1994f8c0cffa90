"""Rebalance: partitions come to a member, and go. What the client calls back, inside the processor's own calls of it.

What holds across one: a record that was taken in an assignment that is over does not count any more, even where the
partition has come back since (its generation is another); its lane stays busy until it has landed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from stream.assignment import Assignment
from stream.failpoints import failpoint
from stream.groupstate import GroupState
from stream.kafka.consumer import GroupConsumer
from stream.lanes import Lanes
from stream.meters import GroupMeter
from stream.offsets import Partition, Progress
from stream.suspects import Suspects
from stream.workers import Flight, Workers

log = structlog.get_logger("stream.processor")


@dataclass
class Rebalance:
    """The `Listener` of one member; owned by the processor's thread.

    `leaving`: being revoked, nothing of them starts any more. `dying`: this process dies of what a handler did, as
    much as of a kill: what it had is not released. `await_landings` waits for flights as long as a rebalance may;
    `paused` says whether nothing is to be fetched now.
    """

    group: str
    stopping: threading.Event
    assignment: Assignment
    consumer: GroupConsumer
    state: GroupState
    workers: Workers
    lanes: Lanes
    progress: Progress
    suspects: Suspects
    meter: GroupMeter
    paused: Callable[[], bool]
    await_landings: Callable[[set[Flight]], None]
    leaving: set[Partition] = field(default_factory=set)
    dying: bool = False

    def assigned(self, partitions: list[Partition]) -> None:
        """Start on them; a tracker each, of a new generation."""
        self.meter.rebalances += 1
        if self.stopping.is_set():
            return
        starts, unreleased = self.assignment.open(partitions)
        if self.paused():
            self.consumer.pause()  # what has just come, too
        self.progress.start(starts)
        self.suspects.watch(unreleased)
        if unreleased:
            log.warning("partitions.suspect", group=self.group, partitions=names(unreleased))
        if partitions:
            log.info("partitions.assigned", group=self.group, partitions=names(partitions))

    def revoked(self, partitions: list[Partition]) -> None:
        """Drop what has not started, wait for what has, commit: the next owner starts right behind it."""
        failpoint("consume.revoke")
        self.meter.rebalances += 1
        self.leaving.update(partitions)
        for topic, number in partitions:
            self.lanes.drop(topic, number)
        self.await_landings(self._flights_of(partitions))
        self.commit_now(self.progress.committable(partitions))
        self._forget(partitions)
        if not self.dying:
            self._release([partition for partition in partitions if partition not in self.suspects])
        self.suspects.forget(partitions)
        if partitions:
            log.info("partitions.revoked", group=self.group, partitions=names(partitions))

    def lost(self, partitions: list[Partition]) -> None:
        """They are another member's already: nothing is committed, nothing waited for."""
        self.meter.rebalances += 1
        for topic, number in partitions:
            self.lanes.drop(topic, number)
        self._forget(partitions)
        self.suspects.forget(partitions)
        log.warning("partitions.lost", group=self.group, partitions=names(partitions))

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """The broker has these offsets."""
        self.progress.committed(offsets)
        failpoint("consume.after_offset_commit")

    def restart(self, partitions: list[Partition]) -> None:
        """Their position is not in the log any more: decide again where to go on."""
        self.lost(partitions)
        self.consumer.stop(partitions)
        self.assigned(partitions)

    def commit_now(self, offsets: Mapping[Partition, int]) -> None:
        """Commit and wait for the broker."""
        if offsets:
            failpoint("consume.before_offset_commit")
            self.consumer.commit_now(offsets)

    def _release(self, partitions: list[Partition]) -> None:
        try:
            self.state.released(partitions)
        except Exception as error:  # noqa: BLE001  # then they are suspects for a while
            log.warning("group.leaving", group=self.group, step="release", error=str(error))

    def _forget(self, partitions: Iterable[Partition]) -> None:
        for flight in self._flights_of(partitions):
            flight.abandoned = True  # it may finish; it is not waited for, nor tried again
        self.progress.forget(partitions)
        self.leaving.difference_update(partitions)

    def _flights_of(self, partitions: Iterable[Partition]) -> set[Flight]:
        wanted = set(partitions)
        return {
            flight
            for flight in self.workers.flights
            if any((record.topic, record.partition) in wanted for record in flight.run.records)
        }


def names(partitions: Iterable[Partition]) -> list[str]:
    """`orders[3]` and so on, for people."""
    return [f"{topic}[{number}]" for topic, number in sorted(partitions)]
