"""Shards: which part of the outbox this relay owns, held by session advisory locks on one connection.

A lock is one atomic fact in the database: it falls when the process dies, and the session's time limits make it
fall when the process freezes or its network does. Everything a relay reads, moves or deletes runs on this session,
so a relay that lost its shards cannot act on them. Any psycopg.Error on it means: lost; forget and begin again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from psycopg.types.json import set_json_loads

from stream.database import LOCK_MEMBER, LOCK_SHARD, Connection, connect, query
from stream.errors import Refused
from stream.floors import SHARDS
from stream.schemas import from_json

APPLICATION_NAME = "stream-relay"
REFRESH_S = 1.0
LEAVE_S = 5.0

# Each of the three alone leaves a state in which a frozen relay keeps its shards for ever: idle, frozen inside a
# transaction, and frozen while the server sends it rows.
SESSION_SETTINGS = {
    "idle_session_timeout": "5s",
    "idle_in_transaction_session_timeout": "5s",
    "tcp_user_timeout": "5s",
    "statement_timeout": "60s",
    "timezone": "UTC",
    # A lost delete is a row published twice, which is allowed; nothing else here may be lost.
    "synchronous_commit": "off",
    # The table is empty one moment and full the next: its statistics are always wrong. Index probes always work.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}


class ShardSession:
    """One relay's connection and the shards it owns. Used by the relay's thread only."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.owned: set[int] = set()
        self._leaving: dict[int, float] = {}  # shard -> when it is given up, whatever is still in memory
        self._last_refresh = float("-inf")

    @classmethod
    def open(cls, url: str) -> ShardSession:
        """Connect as a member. Raises Unreachable, or Refused behind a pooler that shares sessions."""
        connection = connect(
            url, application_name=APPLICATION_NAME, autocommit=True, settings=SESSION_SETTINGS
        )
        try:
            _refuse_transaction_pooler(url, connection)
            # Numbers of the caller's data stay exact, and none of them can make a read fail.
            set_json_loads(from_json, connection)
            connection.execute("select pg_advisory_lock(%s, pg_backend_pid())", [LOCK_MEMBER])
        except BaseException:
            connection.close()
            raise
        return cls(connection)

    def refresh(self, busy: Callable[[], set[int]], drop: Callable[[set[int]], None]) -> bool:
        """Once a second: count the relays, give shards up or take more; true if the owned shards changed.

        A shard that leaves is read no more, and given up once nothing of it is in memory (`busy`), so that
        handing over doubles nothing; or after a while, its rows dropped: a sick topic may hold them for ever.
        """
        now = time.monotonic()
        if self._leaving:
            self._let_go(now, busy(), drop)
        if now - self._last_refresh < REFRESH_S:
            return False
        self._last_refresh = now
        fair = -(-SHARDS // self.members())
        before = set(self.owned)
        if len(self.owned) > fair:
            leaving = random.sample(sorted(self.owned), len(self.owned) - fair)
            self._leaving.update(dict.fromkeys(leaving, now + LEAVE_S))
            self.owned.difference_update(leaving)
        elif len(self.owned) < fair:
            self._take(fair - len(self.owned))
        return self.owned != before

    def members(self) -> int:
        """How many relays there are, this one included."""
        cursor = self.connection.execute(query("count_relays"), {"member_class": LOCK_MEMBER})
        [(members,)] = cursor.fetchall()
        return max(int(members), 1)

    def _take(self, count: int) -> None:
        staying = list(self._leaving)[:count]
        for shard in staying:
            del self._leaving[shard]
        self.owned.update(staying)
        free = [shard for shard in range(SHARDS) if shard not in self.owned and shard not in self._leaving]
        random.shuffle(free)
        taken = self.connection.execute(
            "select s from unnest(%s::int[]) s where pg_try_advisory_lock(%s, s) limit %s",
            [free, LOCK_SHARD, count - len(staying)],
        )
        self.owned.update(shard for (shard,) in taken)

    def _let_go(self, now: float, busy: set[int], drop: Callable[[set[int]], None]) -> None:
        gone = {shard for shard, at_last in self._leaving.items() if shard not in busy or now > at_last}
        if not gone:
            return
        drop(gone)
        self.connection.execute(
            "select pg_advisory_unlock(%s, s) from unnest(%s::int[]) s", [LOCK_SHARD, list(gone)]
        )
        for shard in gone:
            del self._leaving[shard]

    def close(self) -> None:
        self.connection.close()


def _refuse_transaction_pooler(url: str, connection: Connection) -> None:
    """Two sessions of ours must have two server processes: a transaction pooler hands both the same one."""
    with connect(url, application_name=APPLICATION_NAME, autocommit=True) as other:
        pids = [_backend(connection), _backend(other), _backend(connection)]
    if pids[0] == pids[1] or pids[0] != pids[2]:
        raise Refused(
            "the database is behind a pooler that shares sessions (transaction pooling): the relay's locks do not hold",
            hint="give the relay a DATABASE_URL that reaches PostgreSQL itself, or a pooler in session mode",
        )


def _backend(connection: Connection) -> Any:
    [(pid,)] = connection.execute("select pg_backend_pid()").fetchall()
    return pid
