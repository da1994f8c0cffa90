"""Promotion: due rows of `scheduled` into the outbox, each key's in order of due time.

A row goes under its key's append lock, as every row of the outbox does. The locks are taken by try, for waiting
would stop the relay and could make a business transaction the victim of a deadlock. A key that is always busy
would starve so: once it is long overdue its lock is waited for, alone, far below `deadlock_timeout`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from psycopg import errors as pg

from stream.database import LOCK_APPEND, query
from stream.failpoints import failpoint
from stream.floors import Floors
from stream.shards import ShardSession

PROMOTED_AT_ONCE = 2000
TRY_AGAIN_S = 0.05  # a blocked key is left out for so long, lest its rows fill every batch
OVERDUE_S = 0.5  # a key blocked for so long is waited for
WAIT_EVERY_S, WAIT_EVERY_S_AT_MOST = 0.5, 4.0  # more seldom for a key that one transaction sits on
WAIT_FOR_S = 0.1  # in all, each time
LOOK_AT_LOCKS_EVERY_S = 0.1
LOOK_AT_ALL_EVERY_S = 10.0


@dataclass(slots=True)
class _Blocked:
    tried: float
    wait_at: float  # once it is overdue
    waits_s: float = WAIT_EVERY_S


class Promotion:
    """What a relay knows of due rows. Forgotten with the session that owns the shards."""

    def __init__(self) -> None:
        self._blocked: dict[int, _Blocked] = {}  # by the number of the append lock
        self._waited = 0.0
        self._times = Floors()
        self._next_look = 0.0
        self._all_at = 0.0
        self.floor = 0  # microseconds since 1970: no row of the owned shards is due before, or ever will be

    def shards_changed(self) -> None:
        self.floor = 0

    def learn(self, session: ShardSession, now_us: int, first_due_us: int | None) -> None:
        """After a probe that looked for due rows from the floor on: `now_us` is the database's clock then.

        Rows deleted under an old transaction are walked over, as in the outbox; what was written after a moment is
        due after it, so due times have a floor as ids do. Now and then it is forgotten, should the clock have
        been set back.
        """
        now = time.monotonic()
        settled = self._times.settled_in(session.owned) - 1000
        self.floor = max(self.floor, settled if first_due_us is None else min(settled, first_due_us - 1))
        if now > self._all_at:
            self.floor, self._all_at = 0, now + LOOK_AT_ALL_EVERY_S
        if first_due_us is not None and now > self._next_look:
            cursor = session.connection.execute(query("append_lock_holders"), {"append_class": LOCK_APPEND})
            self._times.observe(now_us, cursor.fetchall())
            took = time.monotonic() - now
            self._next_look = now + took + max(LOOK_AT_LOCKS_EVERY_S, 10 * took)

    def promote(self, session: ShardSession) -> int:
        """Move what is due and free; returns how many rows."""
        moved = self._try(session)
        if not moved and self._blocked:
            moved = self._try(session)  # the others, should blocked keys have filled the batch
        moved += self._wait_for_overdue(session)
        if moved:
            failpoint("relay.promoted")
        return moved

    def _try(self, session: ShardSession) -> int:
        now = time.monotonic()
        avoid = [number for number, blocked in self._blocked.items() if now - blocked.tried < TRY_AGAIN_S]
        cursor = session.connection.execute(
            "select * from stream.promote(%s, %s, %s, %s)",
            [list(session.owned), avoid, self.floor, PROMOTED_AT_ONCE],
        )
        [(moved, free, taken)] = cursor.fetchall()
        for number in free:
            self._blocked.pop(number, None)
        for number in taken:
            self._blocked.setdefault(number, _Blocked(now, now + OVERDUE_S)).tried = now
        return int(moved)

    def _wait_for_overdue(self, session: ShardSession) -> int:
        """Wait for busy keys, one at a time, holding no other append lock."""
        begun = time.monotonic()
        if begun - self._waited < WAIT_EVERY_S:
            return 0
        overdue = [
            (blocked.wait_at, number) for number, blocked in self._blocked.items() if begun > blocked.wait_at
        ]
        moved = 0
        for _, number in sorted(overdue):
            if time.monotonic() - begun > WAIT_FOR_S:
                break
            moved += self._wait_for(session, number)
        if overdue:
            self._waited = time.monotonic()
        return moved

    def _wait_for(self, session: ShardSession, number: int) -> int:
        try:
            cursor = session.connection.execute(
                "select stream.promote_waiting(%s, %s, %s, %s)",
                [list(session.owned), number, self.floor, PROMOTED_AT_ONCE],
            )
            [(moved,)] = cursor.fetchall()
        except pg.LockNotAvailable:
            blocked = self._blocked[number]
            blocked.tried = time.monotonic()
            blocked.wait_at = blocked.tried + blocked.waits_s
            blocked.waits_s = min(blocked.waits_s * 2, WAIT_EVERY_S_AT_MOST)
            return 0
        del self._blocked[number]
        return int(moved)
