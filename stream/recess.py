"""Recess: a group's members are away while a rewind moves its offsets. One member's side of it.

The broker lets nobody move the offsets of a group that has members. A member that hears of a rewind (control.py)
finishes what has started, commits, leaves the broker's group and says so in the database; a new one does not join.
They come back once the rewind has ended, or its command is gone, and start where the offsets are then. The process and
its workers stay; whether the command lives is told by a lock that its database session holds (stream.is_rewinding).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from stream.control import Control
from stream.groups import ConsumerGroup
from stream.groupstate import GroupState
from stream.kafka.consumer import GroupConsumer, KafkaException
from stream.offsets import Partition
from stream.rebalance import Rebalance
from stream.topics import retry_topic

log = structlog.get_logger("stream.recess")


class Recess:
    """Owned by the processor's thread. `patiently` asks until database and broker answer; `committed` asks the broker
    for the group's offsets."""

    def __init__(
        self,
        group: ConsumerGroup,
        control: Control,
        consumer: GroupConsumer,
        state: GroupState,
        rebalance: Rebalance,
        patiently: Callable[[Callable[[], str | None]], str | None],
        committed: Callable[[], Mapping[Partition, int]],
    ) -> None:
        self._group = group
        self._control = control
        self._consumer = consumer
        self._state = state
        self._rebalance = rebalance
        self._patiently = patiently
        self._committed = committed
        self._joined = False
        self._rewind: int | None = None  # that this member has made way for

    @property
    def joined(self) -> bool:
        """Whether this member has joined the broker's group, and not left it."""
        return self._joined

    @property
    def called(self) -> bool:
        """Whether a rewind wants the group's members away now."""
        return self._control.standing.recess is not None

    @property
    def away(self) -> bool:
        """Whether a rewind keeps this member out of the group, or it has not come back since."""
        return self.called or self._rewind is not None

    def join(self) -> None:
        """Be in the broker's group; to be called in every pass that is no recess."""
        if self._joined:
            return
        if self._rewind is not None:
            rewind, self._rewind = self._rewind, None
            result = self._patiently(lambda: self._state.rewind_result(rewind))
            log.warning(
                "group.comes_back", group=self._group.name, rewind=rewind, result=result or "given up"
            )
        self._patiently(lambda: self._state.settle_rewinds(self._committed))
        self._consumer.subscribe((*self._group.topics, retry_topic(self._group.name)), self._rebalance)
        self._joined = True

    def make_way(self) -> None:
        """Leave the broker's group, and say so; to be called while nothing is under way."""
        rewind = self._control.standing.recess
        if rewind is None or rewind == self._rewind:
            return
        if self._joined:
            self._leave(rewind)
        self._patiently(lambda: self._state.made_way(rewind))
        self._rewind = rewind

    def _leave(self, rewind: int) -> None:
        log.warning("group.makes_way", group=self._group.name, rewind=rewind)
        self._joined = False
        try:
            self._consumer.close()
        except KafkaException as error:  # it did not take our last offsets: what is above them is read again
            log.warning("group.leaving", group=self._group.name, step="close", error=str(error))
            self._rebalance.lost(sorted(self._rebalance.progress.partitions()))
