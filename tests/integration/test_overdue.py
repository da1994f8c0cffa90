"""The overdue sweep: a retry whose record was lost on its way is called again, ever more seldom, while nothing holds
its group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from stream import Context, Event, TransientError
from stream.config import RetrySettings
from stream.control import Control
from stream.database import query
from stream.groupstate import GroupState
from stream.health import Health
from stream.project import Project
from tests.support.retries import RetryingWorker, make_due, parked, retry_records
from tests.support.small import record
from tests.support.waiting import until, waiting_for_a_lock

QUICK = RetrySettings().scaled(0.01)
MINUTES = {"group": "testers", "first_s": 60.0, "most_s": 3600.0}


@pytest.fixture
def done() -> list[int]:
    """What the handler has done."""
    return []


@pytest.fixture
def lost(
    small: Project, database_url: str, conn: psycopg.Connection[Any], done: list[int]
) -> Iterator[RetryingWorker]:
    """A worker with one parked event whose retry record never came."""
    conn.execute(
        "insert into stream.group_state (consumer_group, start_policy) values ('testers', 'beginning')"
    )
    conn.commit()

    def handler(event: Event, ctx: Context) -> None:
        if ctx.attempt == 1:
            raise TransientError("not now")
        done.append(event.data["n"])

    worker = RetryingWorker(small, database_url, handler)
    assert worker.kinds(record(small, "bad", 7)) == ["parked"]
    make_due(conn)
    assert len(retry_records(conn)) == 1
    yield worker
    worker.execution.close()


class Ticking:
    """A control whose ticks are counted."""

    def __init__(self, url: str) -> None:
        self.ticks = 0
        self.control = Control(url, "testers", "w1", Health(QUICK), QUICK, self._tick)
        self.control.start()

    def _tick(self) -> None:
        self.ticks += 1

    def wait_for_ticks(self, count: int) -> None:
        before = self.ticks
        until(lambda: self.ticks >= before + count)


@pytest.fixture
def ticking(lost: RetryingWorker, database_url: str) -> Iterator[Callable[[], Ticking]]:
    made: list[Ticking] = []

    def make() -> Ticking:
        made.append(Ticking(database_url))
        return made[-1]

    yield make
    for each in made:
        each.control.stop()


def overdue(conn: psycopg.Connection[Any]) -> None:
    conn.execute("update stream.parked set nudge_at = clock_timestamp()")
    conn.commit()


def test_it_is_called_again_after_1_2_4_and_so_on_to_60_minutes(lost, conn) -> None:
    assert conn.execute("select nudge_at - due_at > interval '55 s' from stream.parked").fetchall() == [
        (True,)
    ]
    assert conn.execute(query("nudge"), MINUTES).fetchall() == [(0, None)]
    waits = []
    for _ in range(8):
        overdue(conn)
        assert conn.execute(query("nudge"), MINUTES).fetchall()[0][0] == 1
        [(left,)] = conn.execute(
            "select round(extract(epoch from nudge_at - clock_timestamp()) / 60) from stream.parked"
        ).fetchall()
        waits.append(int(left))
        assert len(retry_records(conn)) == 1
        assert conn.execute(query("nudge"), MINUTES).fetchall() == [(0, None)]
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_record_that_was_refused_is_replaced(lost, conn) -> None:
    conn.execute(
        "insert into stream.outbox_rejected (id, shard, topic, key, event_id, type, time, payload,"
        " header_names, header_values, created_at, reason, error)"
        " select 1, 0, 'testers.retry', key, event_id, type, now(), value, header_names, header_values, now(),"
        " 'refused', 'too large' from stream.parked"
    )
    assert conn.execute("select count(*) from stream.outbox_rejected").fetchall() == [(1,)]
    overdue(conn)
    assert conn.execute(query("nudge"), MINUTES).fetchall()[0][0] == 1
    assert conn.execute("select count(*) from stream.outbox_rejected").fetchall() == [(0,)]
    assert len(retry_records(conn)) == 1


def test_what_was_called_again_runs_once_and_a_held_event_is_left_alone(lost, conn, done) -> None:
    overdue(conn)
    conn.execute("update stream.parked set held = true")
    assert conn.execute(query("nudge"), MINUTES).fetchall() == [(0, None)]
    conn.execute("update stream.parked set held = false")
    conn.execute(query("nudge"), MINUTES)
    [again] = retry_records(conn)
    assert lost.wake(again) == ["done"]
    assert lost.wake(again) == []
    assert done == [7]
    overdue(conn)
    assert conn.execute(query("nudge"), MINUTES).fetchall() == [(0, None)]


def test_one_that_another_process_has_in_hand_is_left_to_it(lost, conn, database_url) -> None:
    overdue(conn)
    conn.execute(query("nudge"), MINUTES)
    with psycopg.connect(database_url) as other:
        assert other.execute(query("nudge"), MINUTES).fetchall() == [(0, None)]


def test_its_times_are_scaled_with_all_others(small, lost, conn, database_url) -> None:
    assert (QUICK.nudge_first_s, QUICK.nudge_most_s) == (0.6, 36.0)
    GroupState(database_url, "testers", "w1").set_limits(1_000_000, QUICK.nudge_first_s)
    lost.run(record(small, "other", 8))
    [(seconds,)] = conn.execute(
        "select extract(epoch from nudge_at - greatest(due_at, parked_at)) from stream.parked"
        " where key = 'other'"
    ).fetchall()
    assert 0.5 < seconds < 0.8


@pytest.mark.parametrize(
    ("hold", "state"),
    [
        ("halted", "halted_at = now(), probe_at = 'infinity'"),
        ("paused", "paused_until = 'infinity'"),
        ("breaker open", "breaker_open_since = now(), probe_at = 'infinity'"),
    ],
)
def test_nothing_is_called_again_while_its_group_is_held(lost, conn, ticking, hold, state) -> None:
    conn.execute(f"update stream.group_state set {state}")
    overdue(conn)
    sweeping = ticking()
    assert sweeping.control.hold == hold
    until(lambda: time.monotonic() > sweeping.control._nudge_at)
    sweeping.wait_for_ticks(5)
    assert retry_records(conn) == []
    conn.execute(
        "update stream.group_state set halted_at = null, paused_until = null, breaker_open_since = null"
    )
    conn.commit()
    until(lambda: retry_records(conn))


def test_a_row_that_the_sweep_has_in_hand_is_gone_once_it_is_applied(
    retrying: Callable[..., RetryingWorker], small: Project, database_url: str, conn: psycopg.Connection[Any]
) -> None:
    """The sweep changes it without the key's lock, and commits while the worker waits to take it away."""
    with psycopg.connect(database_url) as sweep:

        def let_go() -> None:
            until(lambda: waiting_for_a_lock(database_url) == 1)
            sweep.commit()

        letting_go = threading.Thread(target=let_go)

        def handler(event: Event, ctx: Context) -> None:
            if ctx.attempt == 1:
                raise TransientError("not now")
            assert sweep.execute(query("nudge"), MINUTES).fetchone() == (1, None)
            letting_go.start()

        worker = retrying(handler)
        assert worker.kinds(record(small, "bad", 7)) == ["parked"]
        make_due(conn)
        [call] = retry_records(conn)
        conn.execute("update stream.parked set nudge_at = clock_timestamp()")
        conn.commit()
        assert worker.wake(call) == ["done"]
        letting_go.join(30)
    assert parked(conn) == []
