"""What must be on the topics, counted by the writers themselves, and whether it is.

An event's place among its key's is counted after its append, in the same transaction: the row of the counter is
held until the end, so places are commit order, however the ids came about.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import psycopg

from stream import Outbox, app
from stream.config import Config
from stream.project import Project
from tests.support.topics import read_all
from tests.support.waiting import until

Conn = psycopg.Connection[Any]

TABLES = """
create table if not exists counter (key text primary key, n int not null);
create table if not exists truth (event_id uuid primary key, key text not null, n int not null, topic text not null)
"""
COUNT = """
with place as (
    insert into counter values (%(key)s, 1) on conflict (key) do update set n = counter.n + 1 returning n
)
insert into truth select %(id)s, %(key)s, n, %(topic)s from place
"""


class Truth:
    """Appends through the door in and keeps the account. Safe to share between threads."""

    def __init__(self, config: Config, project: Project, *, migrate: bool = True) -> None:
        self.config, self.project = config, project
        self.outbox = Outbox(project)
        if migrate:
            app.migrate(config, project)
        with psycopg.connect(config.database_url) as conn:
            conn.execute(TABLES)

    def append(self, conn: Conn, key: str, type: str = "Happened", n: int = 0, **options: Any) -> uuid.UUID:
        """One event in the transaction of `conn`, and its place among those of its key."""
        id = self.outbox.append(conn, type, key=key, data={"n": n}, **options)
        self.count(conn, key, id, self.project.topics.topic_of(type))
        return id

    def count(self, conn: Conn, key: str, id: uuid.UUID, topic: str = "things") -> None:
        conn.execute(COUNT, {"key": key, "id": id, "topic": topic})

    def commit(self, *keys: str, type: str = "Happened") -> list[uuid.UUID]:
        """One event of each key, in a transaction of its own each."""
        with psycopg.connect(self.config.database_url, autocommit=True) as conn:
            ids = []
            for key in keys:
                with conn.transaction():
                    ids.append(self.append(conn, key, type))
            return ids

    def unpublished(self) -> int:
        with psycopg.connect(self.config.database_url) as conn:
            [(rows,)] = conn.execute(
                "select (select count(*) from stream.outbox) + (select count(*) from stream.scheduled)"
            )
            return int(rows)

    def wait_published(self, seconds: float = 30) -> None:
        """Until the relays have emptied the outbox."""
        until(
            lambda: self.unpublished() == 0, seconds, lambda: f"{self.unpublished()} rows are not published"
        )

    def expected(self, topic: str = "things") -> dict[str, list[str]]:
        with psycopg.connect(self.config.database_url) as conn:
            rows = conn.execute(
                "select key, event_id::text from truth where topic = %s order by key, n", [topic]
            )
            return _by_key(rows.fetchall())

    def check(self, *topics: str) -> int:
        """Nothing lost, nothing made up, first occurrences in commit order; returns how many came twice."""
        doubles = 0
        for topic in topics or ("things",):
            found = first_occurrences(self.config, topic)
            expected = self.expected(topic)
            lost = {id for ids in expected.values() for id in ids} - {
                id for ids in found.ids.values() for id in ids
            }
            assert not lost, f"{topic}: {len(lost)} events lost, among them {sorted(lost)[:3]}"
            assert found.ids == expected, (
                f"{topic}: out of order or made up: {_differences(expected, found.ids)}"
            )
            doubles += found.doubles
        return doubles


class Found:
    """A topic's events by key, each at its first occurrence."""

    def __init__(self, ids: dict[str, list[str]], doubles: int) -> None:
        self.ids, self.doubles = ids, doubles


def first_occurrences(config: Config, topic: str) -> Found:
    seen: set[str] = set()
    rows, doubles = [], 0
    for message in read_all(config, topic):
        id = dict(message.headers() or ())["ce_id"].decode()
        if id in seen:
            doubles += 1
            continue
        seen.add(id)
        rows.append(((message.key() or b"").decode(), id))
    return Found(_by_key(rows), doubles)


def _by_key(rows: Sequence[tuple[Any, ...]]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = defaultdict(list)
    for key, id in rows:
        ids[key].append(id)
    return dict(ids)


def _differences(expected: dict[str, list[str]], found: dict[str, list[str]]) -> list[str]:
    return [
        f"{key}: {expected.get(key)} became {found.get(key)}"
        for key in sorted(expected.keys() | found.keys())
        if expected.get(key) != found.get(key)
    ][:3]


class Writers:
    """Load: threads that append as applications do, with rollbacks and savepoints, until the end of the `with`.

    A writer whose connection is lost opens another: what it had committed stands in the account.
    """

    def __init__(self, truth: Truth, *, threads: int = 3, keys: int = 40, pause_s: float = 0.002) -> None:
        self._truth, self._keys, self._pause_s = truth, [f"key-{n}" for n in range(keys)], pause_s
        self._stopping = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(threads)]
        self.transactions = 0

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)
        assert not self._failures, self._failures

    def wait_transactions(self, count: int, seconds: float = 20) -> None:
        """Until so many more have ended."""
        before = self.transactions
        until(lambda: self.transactions >= before + count or self._failures, seconds, "the writers write")

    def _run(self, seed: int) -> None:
        dice = random.Random(seed)
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._truth.config.database_url, autocommit=True) as conn:
                    while not self._stopping.is_set():
                        self._transaction(conn, dice)
                        self.transactions += 1
                        time.sleep(self._pause_s)
            except (psycopg.OperationalError, psycopg.Rollback):
                time.sleep(0.05)  # the server is being restarted; a rollback may be what found it out
            except BaseException as failure:  # noqa: BLE001  # handed to the main thread
                self._failures.append(failure)
                return

    def _transaction(self, conn: Conn, dice: random.Random) -> None:
        """One to three events of keys in one order, so that two writers cannot deadlock."""
        keys = sorted(dice.sample(self._keys, dice.choice([1, 1, 1, 3])))
        with conn.transaction() as transaction:
            for key in keys:
                if dice.random() < 0.1:
                    with conn.transaction() as savepoint:
                        self._truth.append(conn, key)
                        raise psycopg.Rollback(savepoint)
                self._truth.append(conn, key)
            if dice.random() < 0.1:
                raise psycopg.Rollback(transaction)


def append_bytes(
    conn: Conn,
    topic: str,
    key: bytes | None,
    payload: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] | None = None,
) -> uuid.UUID:
    """A row as retries and dead letters write it: beneath the door, its bytes ready."""
    id = uuid.uuid4()
    names = None if headers is None else [name for name, _ in headers]
    values = None if headers is None else [value for _, value in headers]
    conn.execute(
        """
        select stream.append_encoded(
            array[%s], array[%s::bytea], array[%s], array['Happened'], array[null::timestamptz], array[%s::bytea],
            array[null::jsonb], array[%s::text[]::text], array[%s::bytea[]::text])
        """,
        [topic, key, id, payload, names, values],
    )
    return id


def keys_of_one_shard(conn: Conn, count: int) -> list[str]:
    rows = conn.execute(
        """
        select n::text from generate_series(1, 5000) n
        where get_byte(sha256(convert_to(n::text, 'UTF8')), 0) %% 64 = 5 order by n limit %s
        """,
        [count],
    ).fetchall()
    return [key for (key,) in rows]
