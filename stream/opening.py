"""Opening: how a run's transaction begins, so that no event passes an earlier one of its key that is parked.

A fresh event may be handled once it is claimed and, looked up after that, its key is not parked. (Looked up only
before: somebody who lost its partitions may park the key in between, and give us the claim with the same commit.)
That look is in the claim's own round trip: a probe of an index that is empty while nothing of the group is parked. An
event whose key is parked follows, and is never claimed; a claim that was wrong is given back by undoing the
transaction, which begins again, no attempt counted.

Keys found parked are locked, and looked up again under the lock: the one who runs their last row takes it away
under that lock, and what then still stands there has a live head that will wake what we put behind it. A lock that
somebody else holds is not waited for, because a slow handler may: the events of its key come again, all others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg

from stream.connection import HandlerConnection
from stream.epochs import Epochs
from stream.ledger import Ledger
from stream.outcomes import BUSY, DUPLICATE, PARKED, UNRUN
from stream.parking import Parking
from stream.work import Work, forget, leave_behind

MOST_LOCKS = 256  # of one transaction; PostgreSQL's table of them is small, and everybody's
MOST_MET = 10_000


class TooManyLocks(Exception):
    """So many keys of the run are parked that it has to be done in halves."""


@dataclass
class Opening:
    """Begins the transactions of one worker. Raises psycopg.Error, and TooManyLocks for a run of several works."""

    ledger: Ledger
    parking: Parking | None = None
    epochs: Epochs = field(default_factory=Epochs)
    _wary: bool = False  # something of the group was parked when we last looked
    _met: set[int] = field(default_factory=set)  # lanes that were

    def fresh(self, conn: HandlerConnection, works: list[Work]) -> list[Work]:
        """Begin and claim. Each work is then claimed, or has an outcome: a duplicate, or parked, to be written.

        Works that failed in a transaction that was undone are among them; their lanes get locked at once.
        """
        try:
            locked = self._to_lock(works)
            singles = works if len(works) == 1 else _singles(works)
            if locked or not self._claimed_unlocked(conn, singles, locked):
                while True:
                    if len(locked) > MOST_LOCKS and len(works) > 1:
                        raise TooManyLocks
                    if self._begin_locked(conn, singles, locked):
                        break
                    conn.rollback()
        except BaseException:
            forget(work for work in works if not work.failed)
            raise
        return works

    def _to_lock(self, works: list[Work]) -> set[int]:
        """Lanes of what failed, and of what will be found parked by all likelihood."""
        parking = self.parking
        if parking is None:
            return set()
        locked = {parking.lane_of(work) for work in works if work.outcome is not None}
        if self._met and len(works) > 1:
            locked |= self._met.intersection([parking.lane_of(work) for work in works])
        return locked

    def _claimed_unlocked(self, conn: HandlerConnection, works: list[Work], locked: set[int]) -> bool:
        """The same as `_begin_unlocked`; False, too, where a claim was waited for in vain: by what somebody runs of a
        parked key, say, which is looked for first the next time."""
        try:
            return self._begin_unlocked(conn, works, locked)
        except psycopg.errors.LockNotAvailable:
            if self.parking is None:
                raise
        conn.rollback()
        return False

    def _begin_unlocked(self, conn: HandlerConnection, works: list[Work], locked: set[int]) -> bool:
        """The way of a run that meets nothing parked. False: undone; begin again, with these lanes locked.

        Claimed first and looked up then: what is found parked gives the claim back by undoing the transaction.
        """
        parking = self.parking
        if len(works) == 1 and not works[0].epoch:
            return self._begin_one(conn, works[0], locked)
        wary = self._wary
        found = look = None
        with conn.pipeline():
            conn.execute("begin")
            if parking is not None and wary:
                found = parking.look_for_any(conn)
            settle = self._claim(conn, works)
            if parking is not None and wary:
                look = parking.look(conn, {parking.lane_of(work) for work in works})
            elif parking is not None:
                found = parking.look_for_any(conn)
        if parking is not None:
            self._wary = _flag(found)
            if look is not None:
                locked |= look.found()
            if locked or (self._wary and not wary):
                conn.rollback()
                return False
        settle()
        return True

    def _begin_one(self, conn: HandlerConnection, work: Work, locked: set[int]) -> bool:
        parking = self.parking
        lane = 0 if parking is None else parking.lane_of(work)
        conn.execute("begin")
        mine, parked = self.ledger.claim_one(conn, work.id, work.attempt, lane)
        if parked and parking is not None:
            locked.add(lane)
            conn.rollback()
            return False
        _claimed([work], set() if mine else {work.id})
        return True

    def _claim(
        self, conn: HandlerConnection, works: Sequence[Work], *, parked: bool = False
    ) -> Callable[[], None]:
        """Statements only; once their pipeline has ended, what is returned tells each work what came of it."""
        reapplied = [work for work in works if work.epoch] if self.epochs else []
        if reapplied:
            works = [work for work in works if not work.epoch]
            cursors = self.ledger.claim_reapplied(conn, reapplied)
            if not works:
                return lambda: _claimed_again(reapplied, *cursors)
        again = parked or any([work.first for work in works])
        claim = self.ledger.claim(
            conn, [work.id for work in works], [work.attempt for work in works] if again else None
        )

        def settle() -> None:
            _claimed(works, claim.refused())
            if reapplied:
                _claimed_again(reapplied, *cursors)

        return settle

    def _begin_locked(self, conn: HandlerConnection, works: list[Work], locked: set[int]) -> bool:
        """The same where lanes are parked, or are to be: these are locked. False: more of them were met, now among
        `locked`; undo and begin again."""
        parking = self.parking
        assert parking is not None
        lanes = [parking.lane_of(work) for work in works]
        with conn.pipeline():
            conn.execute("begin")
            ours = parking.try_lock(conn, locked)
            look = parking.look(conn, set(lanes))
        taken = locked.difference([lane for (lane,) in ours])
        parked = look.found()
        self._met = (self._met.difference(lanes) if len(self._met) < MOST_MET else set()) | parked
        if not parked <= locked:
            locked |= parked
            return False
        pairs = list(zip(works, lanes, strict=True))
        free = [work for work, lane in pairs if lane not in parked and lane not in taken]
        behind = [work for work, lane in pairs if lane in parked and lane not in taken]
        with conn.pipeline():
            settle = self._claim(conn, free)
            again = parking.look(conn, look.lanes - parked)
            applied = self.ledger.applied(conn, behind)
        done = set(applied)  # read twice: not to be parked, maybe even before what holds its key
        met = again.found()
        if met:
            locked |= met
            return False
        for work, lane in pairs:
            if lane in taken:
                work.outcome = BUSY
            elif lane in parked:
                work.outcome = DUPLICATE if (work.id, work.epoch) in done else PARKED
        settle()
        return True

    def woken(self, conn: HandlerConnection, lanes: Sequence[int], limit: int) -> tuple[list[Work], set[int]]:
        """Begin, lock the lanes, and claim what of them is due: up to `limit` rows of each, the lowest first. Returns
        the rows, and the lanes that are to be woken again: those that somebody else holds, of which there are none, and
        those whose lowest row is another lane's event, too, and waits for what becomes of it there."""
        parking = self.parking
        assert parking is not None
        with conn.pipeline():
            conn.execute("begin")
            ours = parking.try_lock(conn, lanes)
            loaded = parking.load(conn, lanes, limit)
        taken = set(lanes).difference([lane for (lane,) in ours])
        works = [work for work in parking.works(loaded) if work.row is None or work.row.lane not in taken]
        if works:
            self.date(works)
            self._claim(conn, _singles(works), parked=True)()
        lowest = {work.row.lane: work for work in reversed(works) if work.row is not None}
        return works, taken | {lane for lane, work in lowest.items() if work.outcome is UNRUN}

    def peek(self, conn: HandlerConnection, lane: int) -> list[Work]:
        """The lane's lowest row, if it is due; in no transaction, under no lock."""
        assert self.parking is not None
        return self.parking.works(self.parking.load(conn, [lane], 1))

    def date(self, works: Sequence[Work]) -> None:
        """Give the works the epochs of their positions."""
        if self.epochs:
            for work in works:
                record = work.record
                work.epoch = self.epochs.of(record.topic, record.partition, record.offset)


def _singles(works: Sequence[Work]) -> list[Work]:
    """Of each event the first of its works. The others are duplicates; those of another epoch, and what is behind them,
    run in a later transaction, when it is known what became of the first."""
    if len({work.id.int for work in works}) == len(works):  # a UUID's own hash is made in Python
        return list(works)
    first: dict[UUID, Work] = {}
    for work in works:
        original = first.setdefault(work.id, work)
        if original is not work and not work.finished:
            work.outcome = DUPLICATE if work.epoch == original.epoch else UNRUN
    leave_behind(works)
    return [work for work in first.values() if work.outcome is not UNRUN]


def _flag(cursor: Any) -> bool:
    row = cursor.fetchone()
    return row is not None and bool(row[0])


def _claimed(works: Sequence[Work], refused: set[UUID]) -> None:
    for work in works:
        if refused and work.id in refused:
            work.outcome = DUPLICATE
        else:
            work.claimed = True


def _claimed_again(
    works: Sequence[Work], claimed: Iterable[Sequence[Any]], done: Iterable[Sequence[Any]]
) -> None:
    """Of a range that is run again: what was claimed (event id, epoch, whether it is the first claim of all), and what
    was done in another epoch. What was not, is done for the first time: what it emits was never written."""
    first = {(id, epoch): first for id, epoch, first in claimed}
    before = {(id, epoch) for id, epoch in done}
    for work in works:
        place = (work.id, work.epoch)
        if place not in first:
            work.outcome = DUPLICATE
        else:
            work.claimed = True
            work.rerun = work.epoch if place in before and not first[place] else 0
