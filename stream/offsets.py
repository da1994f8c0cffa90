"""Which offset of a partition may be committed. Pure."""

from __future__ import annotations

from collections import deque

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
