"""Which offsets may be committed: OffsetTracker for a partition, Progress for all that a member has. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

Partition = tuple[str, int]  # (topic, number)


class OffsetTracker:
    """One partition during one assignment: what was received, what is finished, what may be committed.

    Invariant: `committable` never lies beyond a received offset that is not finished. Only received offsets count:
    compaction and transaction markers leave gaps, so nothing is ever concluded from offsets that did not come.
    A new assignment gets a new tracker with a higher `generation`; late completions of an older one are not its.
    """

    __slots__ = ("_finished", "_next", "_open", "committed", "generation")

    def __init__(self, start: int, generation: int = 0) -> None:
        self.generation = generation
        self.committed = start  # what the broker is known to have
        self._next = start
        # A deque and a set: taking the first of a dict again and again walks over its deleted front.
        self._open: deque[int] = deque()
        self._finished: set[int] = set()

    def received(self, offset: int) -> bool:
        """Note an offset that came from the broker; False where it came before, and is not to be run again."""
        if offset < self._next:
            return False
        self._open.append(offset)
        self._next = offset + 1
        return True

    def finished(self, offset: int) -> None:
        """Note that an offset's effects are durable. Twice is once; one never received is nothing."""
        unfinished = self._open
        if not unfinished or offset < unfinished[0]:
            return
        done = self._finished
        if offset != unfinished[0]:
            done.add(offset)
            return
        unfinished.popleft()
        while unfinished and unfinished[0] in done:
            done.remove(unfinished.popleft())

    def passed(self, offset: int) -> None:
        """Note that the broker has nothing more before `offset`, the end of the log: markers are never received."""
        self._next = max(self._next, offset)

    def committable(self) -> int:
        """The first unfinished offset; where there is none, the one after the last received."""
        return self._open[0] if self._open else self._next

    @property
    def position(self) -> int:
        """The offset after the last received one."""
        return self._next


class Progress:
    """The trackers of the partitions a member has now. Each assignment is a new generation."""

    def __init__(self) -> None:
        self.generation = 0
        self._trackers: dict[Partition, OffsetTracker] = {}

    def start(self, starts: Mapping[Partition, int]) -> None:
        """Partitions were assigned, to be read from these offsets."""
        self.generation += 1
        for partition, offset in starts.items():
            self._trackers[partition] = OffsetTracker(offset, self.generation)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """They are not ours any more."""
        for partition in partitions:
            self._trackers.pop(partition, None)

    def partitions(self) -> set[Partition]:
        return set(self._trackers)

    def received(self, partition: Partition, offset: int) -> bool:
        """Note an offset that came; False where it is not ours, or came before."""
        tracker = self._trackers.get(partition)
        return tracker is not None and tracker.received(offset)

    def waits_for(self, partition: Partition, generation: int) -> bool:
        """Whether what was taken in that generation still counts: False once its assignment is over, even if the
        partition has come back since."""
        tracker = self._trackers.get(partition)
        return tracker is not None and tracker.generation <= generation

    def finished(self, partition: Partition, offset: int) -> None:
        self._trackers[partition].finished(offset)

    def passed(self, partition: Partition, offset: int) -> None:
        """The broker has nothing more before `offset`."""
        if partition in self._trackers:
            self._trackers[partition].passed(offset)

    def finished_before(self, partition: Partition) -> int:
        """All before this offset is finished."""
        tracker = self._trackers.get(partition)
        return 0 if tracker is None else tracker.committable()

    def known(self) -> dict[Partition, int]:
        """What the broker is known to have. May be asked by another thread."""
        return {partition: tracker.committed for partition, tracker in self._trackers.copy().items()}

    def position(self, partition: Partition) -> int | None:
        """The offset after the last received one; None where the partition is not ours."""
        tracker = self._trackers.get(partition)
        return None if tracker is None else tracker.position

    def committable(self, partitions: Iterable[Partition] | None = None) -> dict[Partition, int]:
        """What is worth committing: only offsets above those the broker has, so that none goes backwards."""
        offsets = {}
        for partition in self._trackers if partitions is None else partitions:
            tracker = self._trackers.get(partition)
            if tracker is not None and (offset := tracker.committable()) > tracker.committed:
                offsets[partition] = offset
        return offsets

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """The broker has these."""
        for partition, offset in offsets.items():
            tracker = self._trackers.get(partition)
            if tracker is not None:
                tracker.committed = max(tracker.committed, offset)
