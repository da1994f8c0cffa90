"""Corners of failing that were found by looking for them: each broke a promise once."""

from __future__ import annotations

import gc
import threading
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from stream import Context, Event, PermanentError, StopGroup, TransientError, replays
from stream.database import query
from stream.events import event_id_of
from stream.lanes import Run, lane_of
from stream.outcomes import BUSY, FirstTry
from stream.pace import Pace, Paces
from stream.parking import lane_number
from tests.support.retries import USUAL, RetryingWorker, make_due, parked, retry_records
from tests.support.small import record

INSERT = "insert into effect (event_id, key, n) values (%s, %s, %s)"


@pytest.fixture
def worker(retrying: Callable[..., RetryingWorker]) -> Callable[..., RetryingWorker]:
    return retrying


def apply(event: Event, ctx: Context) -> None:
    ctx.db.execute(INSERT, [event.id, event.key, event.data["n"]])


def fails(*numbers: int, error: BaseException) -> Callable[[Event, Context], None]:
    def handle(event: Event, ctx: Context) -> None:
        if event.data["n"] in numbers:
            raise error
        apply(event, ctx)

    return handle


def fetch(conn: psycopg.Connection[Any], statement: str) -> list[tuple[Any, ...]]:
    rows = conn.execute(statement).fetchall()
    conn.commit()
    return rows


def test_what_one_half_of_a_run_parked_is_not_parked_again_when_the_other_is_run_again(
    small, worker, effects, conn
) -> None:
    """The first half is parked, woken and applied while the second waits for a database that was lost."""
    healed = threading.Event()
    waker = worker(apply, name="waker", batch=10)

    def handler(event: Event, ctx: Context) -> None:
        if event.key == "a" and not healed.is_set():
            ctx.db.execute("select 1/0").fetchone()  # in a pipeline: of which event, cannot be said
        if event.key == "d":
            if not healed.is_set():
                healed.set()
                make_due(conn)
                assert waker.wake(*retry_records(conn)) == ["done"]
                ctx.db.execute("select pg_terminate_backend(pg_backend_pid())").fetchone()
            raise ValueError("d fails")
        apply(event, ctx)

    w = worker(handler, batch=10)
    w.kinds(*[record(small, key, n) for n, key in enumerate("abcd")])
    assert fetch(conn, "select convert_from(key, 'UTF8') from stream.parked") == [("d",)]


def test_an_applied_event_read_again_under_a_held_key_is_a_duplicate(
    small, worker, effects, conn, database_url
) -> None:
    broken = {5}

    def handler(event: Event, ctx: Context) -> None:
        if event.data["n"] in broken:
            raise PermanentError("no")
        apply(event, ctx)

    w = worker(handler, batch=10, on_dead="hold")
    first, other, dies = record(small, "k", 1), record(small, "o", 2), record(small, "k", 5)
    assert w.kinds(first, other) == ["done", "done"]
    assert w.kinds(dies) == ["dead"]
    assert w.kinds(first, other, dies) == ["duplicate"] * 3  # its offset was held by another key
    broken.clear()
    with psycopg.connect(database_url, autocommit=True) as db:
        assert replays.replay(db, 1).result == "replayed"
    w.wake_all(*retry_records(conn))
    assert parked(conn) == []
    assert effects() == [("k", 1), ("o", 2), ("k", 5)]


def test_a_follower_that_comes_to_stand_first_is_called(small, worker, effects, conn) -> None:
    """An earlier event of the key is read after a later one was parked: by a member that had lost the partition."""
    early, late = record(small, "k", 1), record(small, "k", 2)
    w = worker(fails(2, error=TransientError("not now")), batch=10)
    w.run(late)
    retry_records(conn)
    assert w.kinds(early, record(small, "o", 3)) == ["parked", "done"]
    w.wake_all(*retry_records(conn))
    assert effects() == [("o", 3), ("k", 1)]
    assert parked(conn) == [(late.offset, 1, True, False)]


@pytest.mark.parametrize("how", ["stop", "rate"])
def test_a_try_that_ends_without_a_death_blames_no_suspect(
    small, worker, effects, conn, database_url, how
) -> None:
    def stop(event: Event, ctx: Context) -> None:
        raise StopGroup("config is missing")

    event = record(small, "k", 1)
    for n in range(4):
        w = worker(stop if how == "stop" else apply, name=f"w{n}")
        if how == "rate":
            own = Pace(database_url, "testers", 0.1, w.stopping)
            pace = Paces(own, own)
            conn.execute("update stream.group_state set next_slot = clock_timestamp() + interval '1 hour'")
            conn.commit()
            pace.approach = lambda: None  # type: ignore[method-assign]  # the slot is far ahead, and waited for inside
            w.execution._pace = w.execution._transactions._pace = pace
            threading.Timer(0.3, w.stopping.set).start()
        assert [o.kind for o in w.execution.run(Run([event], suspect=True))] == ["unrun"]
        assert fetch(conn, "select count(*) from stream.suspect") == [(0,)]
        if how == "rate":
            pace.close()
    assert fetch(conn, "select count(*) from stream.dead_letter") == [(0,)]


def test_a_suspect_whose_claim_is_held_keeps_no_other_from_being_tried(
    small, worker, effects, conn, monkeypatch
) -> None:
    monkeypatch.setattr("stream.transaction.LOCK_TIMEOUT_S", 0.2)
    records = [record(small, f"k{n}", n) for n in range(4)]
    w = worker(apply)
    conn.execute(
        "insert into stream.ledger (consumer_group, event_id, epoch, attempts, worker)"
        " values ('testers', %s, 0, 1, 'frozen')",
        [event_id_of(records[0])],
    )
    outcomes = w.execution.run(Run(records, suspect=True))
    conn.rollback()
    assert outcomes[0] is BUSY
    assert [outcome.kind for outcome in outcomes[1:]] == ["done"] * 3
    assert fetch(conn, "select count(*) from stream.suspect") == [(0,)]


def test_an_event_read_again_whose_parked_row_is_at_work_holds_no_other(
    small, worker, effects, conn, monkeypatch
) -> None:
    monkeypatch.setattr("stream.transaction.LOCK_TIMEOUT_S", 0.5)
    go, started = threading.Event(), threading.Event()

    def slow(event: Event, ctx: Context) -> None:
        started.set()
        go.wait(30)
        apply(event, ctx)

    bad = record(small, "bad", 1)
    worker(fails(1, error=TransientError("not now")), batch=10).run(bad)
    make_due(conn)
    calls = retry_records(conn)
    waker = worker(slow, name="waker", batch=10)
    thread = threading.Thread(target=lambda: waker.wake(*calls))
    thread.start()
    assert started.wait(30)
    owner = worker(apply, name="owner", batch=10)
    outcomes = owner.run(bad, *[record(small, f"o{n}", n) for n in range(3)])
    go.set()
    thread.join()
    assert outcomes[0] is BUSY
    assert [outcome.kind for outcome in outcomes[1:]] == ["done"] * 3
    assert owner.kinds(bad) == ["duplicate"]


def test_a_key_at_work_elsewhere_takes_no_turn_of_the_rate(
    small, worker, effects, conn, database_url, monkeypatch
) -> None:
    monkeypatch.setattr("stream.pace.LATE_S", 0.4)  # no turn is lost because this machine is slow
    worker(fails(1, error=TransientError("not now"))).run(record(small, "bad", 1))
    conn.execute("select stream.lock_lanes(%s)", [[lane_number("testers", "things", b"bad", 0)]])
    pace = Pace(database_url, "testers", 2.0, threading.Event())
    booked: list[None] = []
    book = pace._book
    pace._book = lambda: booked.append(book())  # type: ignore[method-assign]  # one slot each, at this rate
    good, busy = worker(apply, name="good"), worker(apply, name="busy")
    for w in (good, busy):
        w.execution._pace = w.execution._transactions._pace = Paces(pace, pace)
    behind = record(small, "bad", 2)
    with ThreadPoolExecutor(1) as another:
        for n in range(4):
            assert good.kinds(record(small, f"g{n}", n)) == ["done"]
            for _ in range(2):
                assert another.submit(busy.run, behind).result() == [BUSY]
    conn.rollback()
    pace.close()
    assert len(booked) <= 6, f"{len(booked)} turns for 4 events"


def test_a_probe_kills_nothing_that_has_used_up_its_tries(small, worker, effects, conn) -> None:
    w = worker(fails(1, error=ValueError("what a provider that is down makes of it")), attempts=2)
    event = record(small, "k", 1)
    now = time.monotonic()
    run = Run([event], first={lane_of(event): FirstTry(now, now, "ValueError", "x")}, probe=True)
    assert [outcome.kind for outcome in w.execution.run(run)] == ["unrun"]
    assert run.probe_failed
    assert fetch(conn, "select count(*) from stream.dead_letter") == [(0,)]


def test_a_run_locks_no_more_keys_than_it_may(small, worker, effects, conn) -> None:
    held: list[int] = []

    def look(event: Event, ctx: Context) -> None:
        [(locks,)] = ctx.db.execute(
            "select count(*) from pg_locks where locktype = 'advisory' and classid = x'53540004'::int"
        ).fetchall()
        held.append(int(locks))

    error = TransientError("not now")
    worker(fails(*range(300), error=error), batch=500).run(*[record(small, f"k{n}", n) for n in range(300)])
    owner = worker(look, name="owner", batch=500)
    owner.run(record(small, "z", 1), record(small, "y", 1))
    again = [record(small, f"k{n}", n + 1000) for n in range(300)]
    assert set(owner.kinds(*again, record(small, "free", 1))) == {"parked", "done"}
    assert max(held) <= 256


def test_no_more_than_a_hundred_first_failures_of_a_run_are_kept_in_memory(small, worker, effects) -> None:
    w = worker(
        fails(*range(300), error=TransientError("not now")),
        batch=500,
        may_postpone=lambda more: more < 100,
    )
    kinds = w.kinds(*[record(small, f"k{n}", n) for n in range(300)])
    assert (kinds.count("postponed"), kinds.count("parked")) == (100, 200)


def test_a_failure_takes_one_retry_of_the_budget(small, worker, effects) -> None:
    error = TransientError("429", retry_after=30)
    w = worker(fails(1, error=error), may_postpone=lambda _: True)
    before = w.health._budget._saved
    assert w.kinds(record(small, "k", 1)) == ["parked"]
    assert before - w.health._budget._saved == pytest.approx(1, abs=0.1)


def test_a_late_failure_is_undone_with_its_neighbours_and_no_others(small, worker, effects, conn) -> None:
    calls: Counter[int] = Counter()

    def handler(event: Event, ctx: Context) -> None:
        n = event.data["n"]
        calls[n] += 1
        apply(event, ctx)
        ctx.emit("Happened", key=str(event.key), data={"n": n + 1000})
        if n % 40 == 7:
            raise TransientError("not now")
        if n % 40 == 8:
            ctx.skip("nothing")

    w = worker(handler, batch=500, may_postpone=lambda _: True)
    w.execution._transactions.careful_for = 10
    kinds = w.kinds(*[record(small, f"k{n % 100}", n) for n in range(200)])
    expected = ["skipped" if n % 40 == 8 else "done" for n in range(200)]
    for n in (7, 47, 87, 127, 167):
        expected[n] = "postponed"
    for n in (107, 147, 187):  # behind one of its key
        expected[n] = "unrun"
    assert kinds == expected
    applied = [n for n, kind in enumerate(kinds) if kind in ("done", "skipped")]
    assert sorted(n for _, n in effects()) == applied
    assert fetch(conn, "select count(*) from stream.ledger") == [(len(applied),)]
    assert fetch(conn, "select count(*) from stream.outbox where topic = 'things'") == [(len(applied),)]
    assert sum(calls.values()) <= 200 + 5 * 32


@pytest.mark.parametrize("kept", [True, False], ids=["kept in memory", "parked"])
@pytest.mark.parametrize("way", ["before SQL", "after SQL", "a statement", "the commit", "of a list"])
@pytest.mark.parametrize("batch", [1, 10])
def test_what_failed_is_let_go_of_without_a_garbage_collection(
    small, worker, effects, conn, kept: bool, way: str, batch: int
) -> None:
    """An error's frames lead to all that its run held, so neither may be held by any of that."""
    conn.execute("alter table effect add unique (key, n) deferrable initially deferred")
    conn.commit()
    held: list[weakref.ref[object]] = []

    def noted(thing: Exception) -> Exception:
        held.append(weakref.ref(thing))
        return thing

    def handler(event: Event, ctx: Context) -> None:
        in_its_frame = noted(TransientError("held by the frame"))  # noqa: F841
        if way != "before SQL":
            apply(event, ctx)
        if event.data["n"] == 1:
            if way == "the commit":
                apply(event, ctx)
            elif way == "a statement":
                ctx.db.execute("select 1 / 0")
            else:
                raise noted(TransientError("not now"))

    def handle_list(events: list[Event], ctx: Context) -> None:
        for event in events:
            handler(event, ctx)

    w = worker(handler, batch=batch, may_postpone=lambda _: kept)
    if way == "of a list":
        del w.group.handlers["Happened"]
        w.group.on("Happened", batch=True)(handle_list)
    records = [record(small, "a", 1), record(small, "b", 2)]
    first = "postponed" if kept and way != "the commit" else "parked"
    gc.disable()
    try:
        outcomes = w.run(*records) if batch > 1 else [w.run(each)[0] for each in records]
        assert [outcome.kind for outcome in outcomes] == [first, "done"]
        assert len(held) >= 2
        assert [each() for each in held] == [None] * len(held)
    finally:
        gc.enable()


def test_an_error_that_lets_nothing_be_changed_is_its_events_failure(small, worker, effects) -> None:
    @dataclass(frozen=True)
    class Frozen(Exception):
        code: int

    w = worker(fails(1, error=Frozen(421)), batch=1)
    assert w.kinds(record(small, "a", 1)) == ["parked"]


def test_an_id_that_stands_under_two_keys_turns_no_key_round(small, worker, effects) -> None:
    w = worker(fails(1, error=TransientError("not now")), batch=10, may_postpone=lambda _: True)
    id = uuid.uuid4()
    records = [record(small, "b", 1, id=id), record(small, "a", 1, id=id), record(small, "a", 2)]
    assert w.kinds(*records) == ["postponed", "duplicate", "done"]


def test_a_database_whose_transactions_see_one_snapshot_leaves_no_key_behind(
    small, worker, effects, conn, database_url
) -> None:
    """What a lock protects is read once it is held, whatever the database says by default."""
    with psycopg.connect(database_url, autocommit=True) as db:
        db.execute(f"alter database {conn.info.dbname} set default_transaction_isolation = 'repeatable read'")
    seen: list[str] = []

    def ask(event: Event, ctx: Context) -> None:
        [(level,)] = ctx.db.execute("show transaction_isolation").fetchall()
        seen.append(level)

    w = worker(ask, batch=10)
    w.run(record(small, "k", 1))
    w.run(record(small, "k", 2), record(small, "l", 3))
    assert set(seen) == {"read committed"}


def test_probes_are_further_and_further_apart(retrying, conn) -> None:
    conn.execute(
        query("open_breaker"), {"group": "testers", "reason": "down", "probe_s": USUAL.probe_first_s}
    )
    seconds = []
    for _ in range(7):
        [(apart,)] = fetch(conn, "select extract(epoch from probe_interval)::float8 from stream.group_state")
        seconds.append(apart)
        conn.execute(query("probe_failed"), {"group": "testers", "most_s": USUAL.probe_most_s})
    assert seconds == [1, 2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize("careful", [False, True])
def test_an_event_that_fails_when_a_later_one_had_failed_already_goes_first(
    small, worker, effects, conn, careful
) -> None:
    """The second of a key fails and undoes the first, which then fails as well."""
    calls: Counter[int] = Counter()

    def handler(event: Event, ctx: Context) -> None:
        n = event.data["n"]
        calls[n] += 1
        apply(event, ctx)
        if n == 2 or (n == 1 and calls[n] == 2):
            raise ValueError(f"{n} fails late")

    w = worker(handler, batch=10, may_postpone=lambda _: True)
    if careful:
        w.execution._transactions.careful_for = 10
    assert w.kinds(*[record(small, "a", n) for n in (1, 2, 3)]) == ["postponed", "unrun", "unrun"]
    assert parked(conn) == []
