"""Epochs: which records are of a range of history that is run again on purpose. Pure.

A record's epoch is decided by its position alone, so it is the same for whoever reads it, however often, parked or
fresh: that of the newest range that holds it, 0 where none does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stream.offsets import Partition


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of a partition, from `from_offset` up to and without `to_offset`, the end of its log when the range was
    planned. The group stood at `old_offset`: what lies between the two had not been applied, but for a few records
    that were finished before an earlier one."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    old_offset: int


class Epochs:
    """The ranges of one group, shared by its workers in a process. `learn` replaces them at once, for any thread."""

    def __init__(self, ranges: Iterable[tuple[int, Range]] = ()) -> None:
        self._newest_first: dict[Partition, Sequence[tuple[int, Range]]] = {}
        self.learn(ranges)

    def __bool__(self) -> bool:
        return bool(self._newest_first)

    def learn(self, ranges: Iterable[tuple[int, Range]]) -> None:
        """These, each with its epoch, and no others."""
        found: dict[Partition, list[tuple[int, Range]]] = {}
        for epoch, range in ranges:
            found.setdefault((range.topic, range.partition), []).append((epoch, range))
        self._newest_first = {
            partition: sorted(of, key=lambda pair: pair[0], reverse=True) for partition, of in found.items()
        }

    def of(self, topic: str, partition: int, offset: int) -> int:
        """The epoch of the record at this position."""
        for epoch, range in self._newest_first.get((topic, partition), ()):
            if range.from_offset <= offset < range.to_offset:
                return epoch
        return 0


def passed_over(range: Range, committed: int, new: int) -> list[Range]:
    """What is left of a range when its group, which has come to `committed`, goes on at `new` instead.

    What is passed over is not run again; nothing more is where the group is back where it stood.
    """
    low, high = min(range.to_offset, committed), range.to_offset if new >= range.old_offset else new
    kept = ((range.from_offset, low), (max(range.from_offset, high), range.to_offset))
    return [replace(range, from_offset=start, to_offset=end) for start, end in kept if start < end]
