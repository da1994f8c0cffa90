"""Due rows: when they are moved to the outbox, in which order, and whom that keeps waiting."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.project import Project
from stream.promotion import PROMOTED_AT_ONCE
from stream.relay import Relay
from tests.support.small import make_project
from tests.support.topics import read_all
from tests.support.truth import Truth
from tests.support.waiting import until

Conn = psycopg.Connection[Any]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "small")


class Running:
    """A relay at work in a thread of its own."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._thread = threading.Thread(target=relay.run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._relay.stop()
        self._thread.join(30)


def published(truth: Truth, conn: Conn) -> list[tuple[str, int]]:
    """(key, n) in the order of the topic's partitions."""
    return [
        ((message.key() or b"").decode(), truth.project.codec.decode(message.value() or b"")[1]["n"])
        for message in read_all(truth.config, "things")
    ]


def left(conn: Conn, table: str = "scheduled") -> int:
    [(rows,)] = conn.execute(f"select count(*) from stream.{table}")  # type: ignore[arg-type]  # a name of this file
    conn.rollback()
    return int(rows)


def test_delayed_events_leave_when_they_are_due_in_order_of_due_time(
    truth: Truth, relay: Relay, conn: Conn
) -> None:
    for n, delay in enumerate([0.4, 0.2, 0.3, 0.2]):
        truth.outbox.append(conn, "Happened", key="k", data={"n": n}, delay=delay)
    truth.outbox.append(conn, "Happened", key="k", data={"n": 9}, delay=3600)
    truth.outbox.append(conn, "Happened", key="k", data={"n": 8})
    conn.commit()
    written = time.monotonic()
    with Running(relay):
        until(lambda: left(conn) == 1 and left(conn, "outbox") == 0, 10)
        assert time.monotonic() - written >= 0.4
    assert [n for _, n in published(truth, conn)] == [8, 1, 3, 2, 0]


def test_rows_that_fell_due_while_no_relay_ran_leave_in_order_of_due_time(
    truth: Truth, relay: Relay, conn: Conn
) -> None:
    for n, delay in enumerate([0.05, 0.01, 0.03, 0.01]):
        truth.outbox.append(conn, "Happened", key="k", data={"n": n}, delay=delay)
    conn.commit()
    until(lambda: left(conn, "scheduled where due_at > now()") == 0)
    relay.run_until_empty()
    assert [n for _, n in published(truth, conn)] == [1, 3, 2, 0]


def test_once_publishes_what_is_due_and_does_not_wait_for_the_rest(
    truth: Truth, relay: Relay, conn: Conn
) -> None:
    for n, delay in enumerate([0, 3600]):
        truth.outbox.append(conn, "Happened", key="k", data={"n": n}, delay=delay)
    conn.commit()
    assert relay.run_until_empty().published == 1
    assert left(conn) == 1


def test_a_debounced_key_that_goes_quiet_fires_once_with_the_newest_data(
    truth: Truth, relay: Relay, conn: Conn
) -> None:
    with Running(relay):
        for n in range(5):
            truth.outbox.append(
                conn, "Happened", key="k", data={"n": n}, delay=0.5, debounce="d", max_wait=60
            )
            truth.outbox.append(conn, "Happened", key="k", data={"n": 10 + n}, delay=0.5, debounce="other")
            conn.commit()
        last = time.monotonic()
        until(lambda: left(conn) == 0 and left(conn, "outbox") == 0, 10)
        assert time.monotonic() - last >= 0.4
    assert sorted(published(truth, conn)) == [("k", 4), ("k", 14)]


def test_a_due_key_whose_lock_is_held_keeps_no_other_waiting_and_leaves_when_it_is_free(
    truth: Truth, relay: Relay, conn: Conn, database_url: str
) -> None:
    for key in ("held", "free"):
        truth.outbox.append(conn, "Happened", key=key, data={"n": 1}, delay=0)
    conn.commit()
    truth.outbox.append(conn, "Happened", key="held", data={"n": 2})
    with psycopg.connect(database_url) as watch, Running(relay):
        until(lambda: left(watch) == 1 and left(watch, "outbox") == 0, 10, "the free one is published")
        begun = time.monotonic()
        for _ in range(10):
            truth.commit("passing by")
        until(lambda: left(watch, "outbox") == 0, 5)
        assert time.monotonic() - begun < 3, "the relay does not sit and wait for the held key"
        conn.commit()
        until(lambda: left(watch) == 0 and left(watch, "outbox") == 0, 5)
    assert [n for key, n in published(truth, conn) if key == "held"] == [2, 1], (
        "in the order they entered the outbox"
    )


def test_once_waits_for_a_due_key_whose_lock_is_held(truth: Truth, relay: Relay, conn: Conn) -> None:
    truth.outbox.append(conn, "Happened", key="held", data={"n": 1}, delay=0)
    conn.commit()
    truth.outbox.append(conn, "Happened", key="held", data={"n": 2})
    once = threading.Thread(target=relay.run_until_empty)
    once.start()
    until(lambda: relay._promotion._waited, 10, "it is overdue")
    assert once.is_alive()
    conn.commit()
    once.join(10)
    assert not once.is_alive()
    assert [n for _, n in published(truth, conn)] == [2, 1]


def test_a_held_key_with_more_due_rows_than_a_batch_keeps_no_other_waiting(
    truth: Truth, relay: Relay, conn: Conn, database_url: str
) -> None:
    schedule_in_bulk(conn, rows=PROMOTED_AT_ONCE + 1, keys=1, due="0")
    truth.outbox.append(conn, "Happened", key="free", data={"n": 1}, delay=0)
    conn.commit()
    truth.outbox.append(conn, "Happened", key="key-0", data={"n": 2})
    relay.run_once()
    with psycopg.connect(database_url) as watch:
        assert left(watch, "scheduled where key = 'free'") == 0


def test_many_due_keys_held_for_long_by_one_transaction_leave_soon_after_it_ends(
    truth: Truth, relay: Relay, conn: Conn, database_url: str
) -> None:
    keys = [f"k{n}" for n in range(100)]
    late = [{"type": "Happened", "key": key, "data": {"n": 1}, "delay": 0} for key in keys]
    truth.outbox.append_many(conn, late)
    conn.commit()
    truth.outbox.append_many(conn, [{"type": "Happened", "key": key, "data": {"n": 2}} for key in keys])
    with psycopg.connect(database_url) as watch, Running(relay):
        until(lambda: relay._promotion._blocked, 10)
        until(lambda: relay._promotion._waited, 10, "some are overdue: one is waited for, alone")
        assert left(watch) == 100
        conn.commit()
        until(lambda: left(watch) == 0, 3, "not one by one")


def test_a_key_that_writers_never_leave_free_is_promoted_all_the_same(
    truth: Truth, relay: Relay, conn: Conn, database_url: str
) -> None:
    """Four writers in turn: a try finds the lock taken, and none of them may become a deadlock's victim."""
    stop, failures = threading.Event(), []

    def write() -> None:
        try:
            with psycopg.connect(database_url) as own:
                while not stop.is_set():
                    truth.outbox.append(own, "Happened", key="busy", data={"n": 0})
                    time.sleep(0.005)  # the transaction works
                    own.commit()
        except BaseException as failure:  # noqa: BLE001  # handed to the main thread
            failures.append(failure)

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    try:
        until(lambda: left(conn, "outbox") > 10)
        truth.outbox.append(conn, "Happened", key="busy", data={"n": 1}, delay=0)
        conn.commit()
        with Running(relay):
            until(lambda: left(conn) == 0, 3, "a busy key's due row")
    finally:
        stop.set()
        for writer in writers:
            writer.join(20)
    assert not failures


def test_rows_due_long_from_now_cost_a_probe_nothing(truth: Truth, relay: Relay, conn: Conn) -> None:
    schedule_in_bulk(conn, rows=5000, keys=100, due="1 day")
    relay.run_once()
    before = due_entries_read(relay, conn)
    for _ in range(10):
        truth.outbox.append(conn, "Happened", key="k", data={"n": 1}, delay=0)
        conn.commit()
        relay.run_once()
    assert 10 <= due_entries_read(relay, conn) - before <= 100


def test_an_old_snapshot_does_not_make_probes_walk_over_what_was_promoted(
    truth: Truth, relay: Relay, conn: Conn, database_url: str
) -> None:
    with psycopg.connect(database_url) as unrelated:
        unrelated.execute("create table unrelated as select pg_current_xact_id()")
        schedule_in_bulk(conn, rows=3000, keys=100, due="0")
        while left(conn):
            relay.run_once()

        def entries_of_a_probe() -> int:
            truth.outbox.append(conn, "Happened", key="k", data={"n": 1}, delay=0)
            conn.commit()
            relay.run_once()
            before = due_entries_read(relay, conn)
            relay.run_once()
            return due_entries_read(relay, conn) - before

        until(lambda: entries_of_a_probe() < 100, 10, "the floor of due times rises")


def schedule_in_bulk(conn: Conn, *, rows: int, keys: int, due: str) -> None:
    conn.execute(
        """
        select stream.append_encoded(
            array_agg('things'::text), array_agg(('key-' || n %% %(keys)s)::bytea), array_agg(gen_random_uuid()),
            array_agg('Happened'::text), array_agg(now()), array_agg('\\x00'::bytea), array_agg(null::jsonb),
            array_agg(null::text), array_agg(null::text), array_agg(%(due)s::interval), array_agg(null::text),
            array_agg(null::interval))
        from generate_series(1, %(rows)s) n
        """,
        {"rows": rows, "keys": keys, "due": due},
    )
    conn.commit()


def due_entries_read(relay: Relay, conn: Conn) -> int:
    assert relay._session is not None
    relay._session.connection.execute("select pg_stat_force_next_flush()")
    [(reads,)] = conn.execute(
        "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'scheduled_due'"
    )
    conn.rollback()
    return int(reads)
