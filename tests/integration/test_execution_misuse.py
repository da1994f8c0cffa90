"""Handlers that misuse their transaction or their exceptions: told, never lost, never anybody else's harm."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from stream import Context, Event, PermanentError, StopGroup, TransientError
from stream.project import Project
from tests.support.executions import INSERT, Worker
from tests.support.small import record
from tests.support.waiting import until

Workers = Callable[..., Worker]
Effects = Callable[[], list[tuple[str, int]]]
Conn = psycopg.Connection[Any]


def claims(conn: Conn) -> int:
    [(count,)] = conn.execute("select count(*) from stream.ledger").fetchall()
    conn.commit()
    return int(count)


@pytest.mark.parametrize("size", [1, 3])
def test_a_statement_that_failed_and_was_passed_over_fails_its_event(
    small: Project, worker: Workers, effects: Effects, conn: Conn, size: int
) -> None:
    def handler(event: Event, ctx: Context) -> None:
        ctx.db.execute(INSERT, [event.id, event.key, 1])
        if event.key == "bad":
            with contextlib.suppress(psycopg.Error):
                ctx.db.execute(INSERT, [event.id, event.key, 5000]).fetchone()

    keys = ["bad", "k1", "k2"][:size]
    outcomes = worker(handler).run(*(record(small, key) for key in keys))
    assert [outcome.kind for outcome in outcomes] == ["failed", "done", "done"][:size]
    assert sorted(effects()) == [(key, 1) for key in keys[1:]]
    assert claims(conn) == size - 1


def test_a_failure_inside_a_savepoint_may_be_passed_over(
    small: Project, worker: Workers, effects: Effects
) -> None:
    def handler(event: Event, ctx: Context) -> None:
        try:
            with ctx.db.transaction():
                ctx.db.execute(INSERT, [event.id, event.key, 5000]).rowcount  # noqa: B018  # waits for the answer
        except psycopg.Error:
            ctx.db.execute(INSERT, [event.id, event.key, 2])

    assert worker(handler).kinds(record(small, "a")) == ["done"]
    assert effects() == [("a", 2)]


def test_a_copy_left_open_fails_its_event_and_hangs_nothing(
    small: Project, worker: Workers, effects: Effects, conn: Conn
) -> None:
    left: list[object] = []

    def handler(event: Event, ctx: Context) -> None:
        if event.key == "bad":
            copy = ctx.db.cursor().copy("copy effect (event_id, key, n) from stdin")
            left.append(copy)
            copy.__enter__()
        else:
            ctx.db.execute(INSERT, [event.id, event.key, 1])

    careless = worker(handler)
    assert careless.kinds(record(small, "bad")) == ["failed"]
    assert careless.kinds(record(small, "good")) == ["done"]
    assert effects() == [("good", 1)]
    left.clear()


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_handler_that_begins_another_transaction_stops_the_group(
    small: Project, worker: Workers, effects: Effects, size: int, end: str, fails: bool
) -> None:
    def handler(event: Event, ctx: Context) -> None:
        ctx.db.execute(INSERT, [event.id, event.key, 1])
        ctx.db.execute(end.encode())
        ctx.db.execute("begin")
        if fails:
            raise ValueError("later")

    with pytest.raises(StopGroup, match="ended its transaction"):
        worker(handler).run(*(record(small, f"k{n}") for n in range(size)))


class Declined(PermanentError):
    def __init__(self, code: int) -> None:  # does not call its base
        self.code = code


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Later(TransientError):
    def __init__(self) -> None:
        self.retry_after = float("nan")


@pytest.mark.parametrize("error", [Declined(5), Unprintable(), Later()])
def test_an_exception_that_cannot_be_shown_is_its_events_failure_and_no_more(
    small: Project, worker: Workers, error: Exception
) -> None:
    def handler(event: Event, ctx: Context) -> None:
        if event.key == "bad":
            raise error

    outcomes = worker(handler).run(record(small, "bad"), record(small, "good"))
    assert [outcome.kind for outcome in outcomes] == ["failed", "done"]
    assert isinstance(outcomes[0].reason, str)


@pytest.mark.parametrize("size", [1, 5])
def test_an_event_that_always_meets_a_taken_lock_is_found_and_holds_no_other(
    small: Project, worker: Workers, effects: Effects, conn: Conn, database_url: str, size: int
) -> None:
    conn.execute("create table account (id int primary key)")
    conn.execute("insert into account values (1)")
    conn.commit()

    def handler(event: Event, ctx: Context) -> None:
        if event.key == "bad":
            ctx.db.execute("select from account for update nowait").fetchone()
        ctx.db.execute(INSERT, [event.id, event.key, 1])

    with psycopg.connect(database_url) as person:
        person.execute("select from account for update")
        keys = ["bad", "k1", "k2", "k3", "k4"][:size]
        outcomes = worker(handler).run(*(record(small, key) for key in keys))
    assert [outcome.kind for outcome in outcomes] == ["failed", *["done"] * (size - 1)]
    assert sorted(effects()) == [(key, 1) for key in keys[1:]]


def test_a_worker_frozen_between_the_statements_of_a_batch_loses_its_claims(
    small: Project, worker: Workers, effects: Effects, conn: Conn
) -> None:
    frozen, go_on = threading.Event(), threading.Event()

    def freezes(event: Event, ctx: Context) -> None:
        ctx.db.execute(INSERT, [event.id, event.key, 1])
        if event.key == "b" and not go_on.is_set():
            frozen.set()
            go_on.wait(60)

    records = [record(small, key) for key in "abc"]
    first = worker(freezes, timeout=0.1)  # so its transaction lasts ten seconds at most
    thread = threading.Thread(target=lambda: first.run(*records))
    thread.start()
    assert frozen.wait(20)
    begun = time.monotonic()

    second = worker(lambda event, ctx: ctx.db.execute(INSERT, [event.id, event.key, 2]) and None)
    assert second.kinds(*records) == ["done"] * 3
    assert time.monotonic() - begun < 25
    go_on.set()
    thread.join(30)
    assert not thread.is_alive()
    until(lambda: claims(conn) == 3)
    assert sorted(effects()) == [("a", 2), ("b", 2), ("c", 2)]
