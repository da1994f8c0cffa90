"""Floors: below which id no row of a shard can ever appear again. Pure.

While any transaction stays open, deleted rows pile up in front of the live ones, and reading from the first row
of a shard walks over all of them. An id is taken only under a lock of the append class, so: with L the last id of
the sequence, read first, and the transactions holding append locks, read then, every id up to L belongs to one of
them or to a transaction that has ended. Once those have ended too, whoever reads next sees all there will ever be
up to L. A lock's number names its shard, so a long transaction holds up the floor of its own shards only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set

SHARDS = 64
Holder = tuple[str, int]  # a virtual transaction, and the shard of one of its locks


class Floors:
    """Follows a sequence and its open writers; `settled[shard]`: all up to it have committed or never will.

    The sequence may be that of ids, or the database's clock: a due time lies after the moment it was written.
    """

    def __init__(self) -> None:
        self.settled = [0] * SHARDS
        self._candidate = [0] * SHARDS
        self._open: list[set[str]] = [set() for _ in range(SHARDS)]

    def observe(self, last: int, holders: Collection[Holder]) -> None:
        """Take in one look: the sequence's last value, then (in a later statement) who held append locks."""
        now: list[set[str]] = [set() for _ in range(SHARDS)]
        for transaction, shard in holders:
            now[shard].add(transaction)
        for shard in range(SHARDS):
            self._open[shard] &= now[shard]
            if not self._open[shard]:
                self.settled[shard] = max(self.settled[shard], self._candidate[shard])
                if not now[shard]:
                    self.settled[shard] = max(self.settled[shard], last)
                self._candidate[shard] = last
                self._open[shard] = now[shard]

    def settled_in(self, shards: Collection[int]) -> int:
        """What is settled in all of these shards."""
        return min((self.settled[shard] for shard in shards), default=0)


class Tally:
    """Whether any row can be left: an id is taken once, so when as many are gone as were taken, none is.

    Spares the reads that would find nothing after each few rows. Ids whose transaction was rolled back, or of another
    relay's shards, are never gone from here: then `settled_at` is the way.
    """

    MOST = 1000  # ids remembered above the lowest that is missing

    def __init__(self) -> None:
        self._base = -1  # all ids up to it are gone, or never will be there
        self._gone: set[int] = set()

    def gone(self, ids: Iterable[int]) -> None:
        """These rows were deleted."""
        self._gone.update(ids)
        if len(self._gone) > self.MOST:
            self._gone.clear()

    def settled_at(self, last: int) -> None:
        """No row was there, and none with an id up to `last` can come."""
        self._base = max(self._base, last)
        self._gone = {id for id in self._gone if id > self._base}

    def is_complete(self, last: int) -> bool:
        """Whether all ids up to `last` are gone."""
        if not self.lacks(last):
            self.settled_at(last)
        return self._base >= last

    def lacks(self, last: int, present: Iterable[int] = ()) -> bool:
        """Whether an id up to `last` is neither gone nor `present`: its row may be anywhere, or still come."""
        wanted = last - self._base
        if wanted > self.MOST:
            return True
        return sum(self._base < id <= last for id in self._gone.union(present)) < wanted


class ReadFrom:
    """Where reads of one (topic, shard) begin.

    At the floor: nothing up to it is left or can come. A key with a long queue in memory is left out of reads, and
    its rows in the table would be walked over each time: while such keys are left out, reads begin `ahead`, up to
    where every row of the other keys is in memory or gone.
    """

    __slots__ = ("_ahead", "_left_out", "floor")

    def __init__(self) -> None:
        self.floor = 0
        self._ahead = 0
        self._left_out: Set[bytes] = frozenset()

    def begin(self, queued: Set[bytes]) -> int:
        """The id after which a read begins that leaves the `queued` keys out."""
        return self.floor if not queued or self.refills(queued) else max(self.floor, self._ahead)

    def refills(self, queued: Set[bytes]) -> bool:
        """Whether the read is the first for a key that was left out before: its queue is short again."""
        return not self._left_out <= queued

    def was_read(
        self, queued: Set[bytes], *, settled: int, lowest: int | None, last: int | None, full: bool
    ) -> None:
        """After a read that was not cut short, and that began after `settled` was known.

        `lowest`: the lowest id in memory, these rows included: what was left out lies above the queue of its key.
        `last`: the last id read, if any; `full`: there may be more behind it.
        """
        self.floor = max(self.floor, settled if lowest is None else min(settled, lowest - 1))
        self._ahead = min(settled, last) if full and last is not None else settled
        self._left_out = queued

    def was_lost(self) -> None:
        """Rows in memory were dropped, and are to be read again: only the floor is still true."""
        self._ahead = 0

    def was_cut_short(self, queued: Set[bytes]) -> None:
        """After a read that may have missed any row."""
        self._left_out = self._left_out | queued
