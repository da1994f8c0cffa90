"""Floors: below which id no row of a shard can ever appear again. Pure.

While any transaction stays open, deleted rows pile up in front of the live ones, and reading from the first row
of a shard walks over all of them. An id is taken only under a lock of the append class, so: with L the last id of
the sequence, read first, and the transactions holding append locks, read then, every id up to L belongs to one of
them or to a transaction that has ended. Once those have ended too, whoever reads next sees all there will ever be
up to L. A lock's number names its shard, so a long transaction holds up the floor of its own shards only.
"""

from __future__ import annotations

from collections.abc import Collection

SHARDS = 64
Holder = tuple[str, int]  # a virtual transaction, and the shard of one of its locks


class Floors:
    """Follows the sequence and its open writers; `settled[shard]`: all ids up to it have committed or never will."""

    def __init__(self) -> None:
        self.settled = [0] * SHARDS
        self._candidate = [0] * SHARDS
        self._open: list[set[str]] = [set() for _ in range(SHARDS)]

    def observe(self, last_id: int, holders: Collection[Holder]) -> None:
        """Take in one look: the sequence's last id, then (in a later statement) who held append locks."""
        now: list[set[str]] = [set() for _ in range(SHARDS)]
        for transaction, shard in holders:
            now[shard].add(transaction)
        for shard in range(SHARDS):
            self._open[shard] &= now[shard]
            if not self._open[shard]:
                self.settled[shard] = max(self.settled[shard], self._candidate[shard])
                if not now[shard]:
                    self.settled[shard] = max(self.settled[shard], last_id)
                self._candidate[shard] = last_id
                self._open[shard] = now[shard]

    def all_settled(self, last_id: int, shards: Collection[int]) -> bool:
        return all(self.settled[shard] >= last_id for shard in shards)


def raised(floor: int, settled: int, lowest_seen: int | None) -> int:
    """The floor of one (topic, shard) after a read that began after `settled` was known.

    Its lowest row seen stays above the floor; where none was seen, nothing up to `settled` is left.
    """
    return max(floor, settled if lowest_seen is None else min(settled, lowest_seen - 1))
