"""One run of records in one transaction, on the real database."""

from __future__ import annotations

import random
import select
import threading
import uuid
from typing import Any

import psycopg
import pytest

from stream import Context, Event, StopGroup
from stream.connection import GATHER
from stream.errors import GroupError
from stream.lanes import Run
from tests.support.executions import INSERT, Worker
from tests.support.small import record
from tests.support.waiting import until


def apply(event: Event, ctx: Context) -> None:
    ctx.db.execute(INSERT, [event.id, event.key, event.data["n"]])


def ledger(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    rows = conn.execute("select outcome, attempts, worker, reason from stream.ledger order by at").fetchall()
    conn.commit()
    return rows


def test_every_event_is_applied_and_its_ledger_row_says_by_whom(small, worker, effects, conn) -> None:
    records = [record(small, "a", 1), record(small, "b", 2), record(small, "a", 3)]
    assert worker(apply).kinds(*records) == ["done"] * 3
    assert effects() == [("a", 1), ("b", 2), ("a", 3)]
    assert ledger(conn) == [("done", 1, "w1", None)] * 3


def test_an_event_applied_before_is_a_duplicate_and_is_not_decoded(small, worker, effects) -> None:
    same = uuid.uuid4()
    w = worker(apply)
    assert w.kinds(record(small, "a", 1, id=same)) == ["done"]
    assert w.kinds(record(small, "a", 1, id=same, value=b"\0bad"), record(small, "a", 2)) == [
        "duplicate",
        "done",
    ]
    assert effects() == [("a", 1), ("a", 2)]


def test_a_double_inside_a_run_is_applied_once(small, worker, effects) -> None:
    same = uuid.uuid4()
    assert worker(apply).kinds(*(record(small, "a", n, id=same) for n in range(3))) == [
        "done",
        "duplicate",
        "duplicate",
    ]
    assert effects() == [("a", 0)]


def test_a_double_of_a_failed_event_is_not_finished(small, worker) -> None:
    def fail(event: Event, ctx: Context) -> None:
        raise RuntimeError("no")

    same = uuid.uuid4()
    assert worker(fail).kinds(record(small, "a", id=same), record(small, "a", id=same)) == ["failed", "unrun"]


def test_tombstones_and_types_without_a_handler_leave_no_ledger_row(small, worker, effects, conn) -> None:
    outcomes = worker(apply).run(
        record(small, "a", value=None),
        record(small, "a", type="Listed"),
        record(small, "a", type="Listed", headers=[]),  # only its bytes say the type
        record(small, "a", 4, headers=[]),
    )
    assert [(o.kind, o.reason) for o in outcomes] == [
        ("skipped", "tombstone"),
        ("skipped", "no handler"),
        ("skipped", "no handler"),
        ("done", None),
    ]
    assert effects() == [("a", 4)]
    assert len(ledger(conn)) == 1


def test_an_event_without_an_id_gets_one_from_its_position(small, worker, effects) -> None:
    w = worker(apply)
    one = record(small, "a", 1, headers=[])
    assert w.kinds(one) == ["done"]
    assert w.kinds(one) == ["duplicate"]


def test_skip_notes_the_reason_in_the_ledger(small, worker, conn) -> None:
    def skip(event: Event, ctx: Context) -> None:
        return ctx.skip("no customer") if event.data["n"] == 0 else None

    w = worker(skip)
    assert w.kinds(record(small, "a", 0)) == ["skipped"]
    assert w.kinds(record(small, "b", 0), record(small, "c", 1)) == ["skipped", "done"]
    assert [(o, r) for o, _, _, r in ledger(conn)].count(("skipped", "no customer")) == 2


@pytest.mark.parametrize("sends", ["nothing", "python error after sql", "sql error"])
@pytest.mark.parametrize("size", [1, 7])
def test_a_failing_event_holds_its_own_key_and_no_other(small, worker, effects, conn, sends, size) -> None:
    def handler(event: Event, ctx: Context) -> None:
        if event.data["n"] == 0:
            if sends != "nothing":
                ctx.db.execute(INSERT, [event.id, event.key, 0])
            if sends == "sql error":
                ctx.db.execute(INSERT, [event.id, event.key, 5000])
            else:
                raise RuntimeError("broken")
        apply(event, ctx)

    others = [record(small, f"k{n}", n) for n in range(1, size)]
    bad, behind = record(small, "bad", 0), record(small, "bad", 1)
    run = [*others[:3], bad, *others[3:], *([behind] if size > 1 else [])]
    outcomes = dict(zip([r.offset for r in run], worker(handler).run(*run), strict=True))
    assert outcomes[bad.offset].kind == "failed"
    assert "broken" in str(outcomes[bad.offset].error) or "small" in str(outcomes[bad.offset].error)
    if size > 1:
        assert outcomes[behind.offset].kind == "unrun"
    assert all(outcomes[r.offset].kind == "done" for r in others)
    assert sorted(effects()) == sorted((f"k{n}", n) for n in range(1, size))
    assert len(ledger(conn)) == len(others)


def test_many_failing_events_are_found_and_the_rest_is_applied(small, worker, effects) -> None:
    def handler(event: Event, ctx: Context) -> None:
        apply(event, ctx)
        if event.data["n"] % 7 == 3:
            ctx.db.execute("select 1/0")

    records = [record(small, f"k{n % 20}", n) for n in range(100)]
    kinds = worker(handler, batch=500).kinds(*records)
    failed_at: dict[str, int] = {}
    for n, kind in enumerate(kinds):
        key = f"k{n % 20}"
        expected = "unrun" if key in failed_at else "failed" if n % 7 == 3 else "done"
        assert kind == expected, n
        if kind == "failed":
            failed_at[key] = n
    assert effects() == [(f"k{n % 20}", n) for n, kind in enumerate(kinds) if kind == "done"]


def test_undecodable_records_fail_alone(small, worker, effects) -> None:
    good = record(small, "good", 1)
    value = good.value
    bad = [
        record(small, "b1", value=b"\xff\xfe garbage"),
        record(small, "b2", value=b"\0\0\0\x03\xe7" + value[5:]),
        record(small, "b3", value=value[:-1]),
        record(small, "b4", value=value + b"x"),
        record(small, "b5", headers=[("ce_type", b"\xc3(")]),
        record(small, "b6", value=b""),
        record(small, b"\xff\xfe"),
        record(small, "b8", headers=[("ce_type", b"Happened")], value=small.codec.encode("Listed", {"n": 1})),
    ]
    outcomes = worker(apply).run(*bad, good)
    assert [o.kind for o in outcomes] == ["failed"] * len(bad) + ["done"]
    assert {o.stage for o in outcomes[:-1]} == {"decode"}
    assert effects() == [("good", 1)]


def test_a_handler_gets_headers_as_they_came_even_when_they_are_no_text(small, worker) -> None:
    seen = []
    r = record(small, "a")
    r.headers = [*r.headers, ("note", b"\xff"), ("note", None)]
    assert worker(lambda event, ctx: seen.append(event.headers[-2:])).kinds(r) == ["done"]
    assert seen == [[("note", b"\xff"), ("note", None)]]


def test_whatever_a_handler_raises_is_its_events_failure(small, worker) -> None:
    def handler(event: Event, ctx: Context) -> None:
        raise [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), AssertionError()][event.data["n"]]

    assert worker(handler).kinds(*(record(small, f"k{n}", n) for n in range(4))) == ["failed"] * 4


def test_stop_group_and_out_of_memory_leave_nothing_and_are_passed_on(small, worker, effects, conn) -> None:
    for error in (StopGroup("enough"), MemoryError()):

        def handler(event: Event, ctx: Context, error: BaseException = error) -> None:
            apply(event, ctx)
            if event.data["n"] == 2:
                raise error

        with pytest.raises(type(error)):
            worker(handler).run(record(small, "a", 1), record(small, "b", 2))
    assert effects() == []
    assert ledger(conn) == []


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("call", ["commit", "rollback", "close", "autocommit"])
def test_a_handler_that_ends_its_transaction_gets_a_clear_error(small, worker, effects, call, size) -> None:
    def handler(event: Event, ctx: Context) -> None:
        apply(event, ctx)
        if call == "autocommit":
            ctx.db.autocommit = False
        else:
            getattr(ctx.db, call)()

    outcomes = worker(handler).run(*(record(small, f"k{n}", n) for n in range(size)))
    assert [o.kind for o in outcomes] == ["failed"] * size
    assert isinstance(outcomes[0].error, GroupError)
    assert f"ctx.db.{call}" in str(outcomes[0].error)
    assert effects() == []


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("statement", ["commit", "rollback"])
@pytest.mark.parametrize("then", ["returns", "raises"])
def test_a_handler_that_ends_its_transaction_with_sql_stops_the_group(
    small, worker, statement, size, then
) -> None:
    def handler(event: Event, ctx: Context) -> None:
        ctx.db.execute(statement)
        if then == "raises":
            raise RuntimeError("after it")

    with pytest.raises(StopGroup, match="ended its transaction"):
        worker(handler).run(*(record(small, f"k{n}", n) for n in range(size)))


def test_a_handler_may_use_savepoints_and_read_what_it_wrote(small, worker, effects) -> None:
    def handler(event: Event, ctx: Context) -> None:
        apply(event, ctx)
        with ctx.db.transaction(force_rollback=True):
            ctx.db.execute(INSERT, [event.id, event.key, 7])
        row = ctx.db.execute("select n from effect where event_id = %s", [event.id]).fetchall()
        assert row == [(event.data["n"],)]

    assert worker(handler).kinds(record(small, "a", 1)) == ["done"]
    assert worker(handler).kinds(record(small, "a", 2), record(small, "b", 3)) == ["done"] * 2
    assert effects() == [("a", 1), ("a", 2), ("b", 3)]


def test_a_handler_gets_the_rows_of_its_own_statement_however_late_other_answers_come(
    small, worker, effects
) -> None:
    """The server answers when its buffer is full: a large one brings those before it while the next is asked."""

    def handler(event: Event, ctx: Context) -> None:
        n = event.data["n"]
        cursor = ctx.db.cursor()
        for ask in (ctx.db, cursor):
            for others in range(GATHER):  # with one of them, the last statement is the one that has all sent
                ask.execute("select repeat('x', 100000)")
                for _ in range(GATHER):
                    ask.execute("select -1")
                select.select([ctx.db.fileno()], [], [], 20)
                for _ in range(others):
                    ask.execute("select -2")
                assert ask.execute("select %s::int", [n]).fetchall() == [(n,)]
        apply(event, ctx)

    assert worker(handler).kinds(*(record(small, f"k{n}", n) for n in range(3))) == ["done"] * 3
    assert [n for _, n in effects()] == [0, 1, 2]


def test_a_statement_that_cannot_be_sent_is_its_own_event_s_failure(small, worker, effects) -> None:
    def handler(event: Event, ctx: Context) -> None:
        apply(event, ctx)
        if event.key == "k7":
            ctx.db.execute(f"select 1 where 1 in ({','.join(['%s'] * 70_000)})", range(70_000))

    kinds = worker(handler).kinds(*(record(small, f"k{n}", n) for n in range(20)))
    assert kinds == ["failed" if n == 7 else "done" for n in range(20)]
    assert [n for _, n in effects()] == [n for n in range(20) if n != 7]


@pytest.mark.parametrize("size", [1, 3])
def test_a_handler_can_count_the_rows_it_changed(small, worker, effects, size) -> None:
    def handler(event: Event, ctx: Context) -> None:
        update = "update effect set n = n where key = %s"
        assert ctx.db.execute(update, [event.key]).rowcount == 0
        apply(event, ctx)
        cursor = ctx.db.cursor()
        cursor.execute(update, [event.key])
        assert (cursor.rowcount, cursor.statusmessage, cursor.description) == (1, "UPDATE 1", None)
        cursor.executemany(INSERT, [(event.id, "more", 1), (event.id, "more", 2)])
        assert cursor.rowcount == 2

    outcomes = worker(handler).run(*(record(small, f"k{n}", n) for n in range(size)))
    assert [outcome.kind for outcome in outcomes] == ["done"] * size, outcomes[0].error


def test_alone_a_handler_can_answer_its_own_sql_error(small, worker, effects) -> None:
    def handler(event: Event, ctx: Context) -> None:
        try:
            with ctx.db.transaction():
                ctx.db.execute(INSERT, [event.id, event.key, 5000])
        except psycopg.errors.CheckViolation:
            ctx.db.execute(INSERT, [event.id, event.key, 999])

    assert worker(handler).kinds(record(small, "a")) == ["done"]
    assert effects() == [("a", 999)]


def test_emits_are_committed_with_the_effects_and_a_failed_events_are_not(small, worker, conn) -> None:
    def handler(event: Event, ctx: Context) -> None:
        ctx.emit("Echoed", key=event.key, data={"n": event.data["n"]})
        if event.data["n"] == 2:
            raise RuntimeError("no")

    kinds = worker(handler).kinds(*(record(small, f"k{n}", n) for n in range(4)))
    assert kinds == ["done", "done", "failed", "done"]
    keys = [bytes(key) for (key,) in conn.execute("select key from stream.outbox order by id")]
    assert keys == [b"k0", b"k1", b"k3"]


def test_a_refused_emit_is_its_events_failure(small, worker, effects) -> None:
    def handler(event: Event, ctx: Context) -> None:
        apply(event, ctx)
        ctx.emit("Echoed", key=event.key, data={"n": "no number"})

    [outcome] = worker(handler).run(record(small, "a"))
    assert (outcome.kind, type(outcome.error).__name__) == ("failed", "InvalidEvent")
    assert effects() == []


def test_what_fails_only_at_the_commit_is_found_too(small, worker, effects, conn) -> None:
    conn.execute("create table parent (n int primary key)")
    conn.execute("create table child (n int references parent deferrable initially deferred)")
    conn.commit()

    def handler(event: Event, ctx: Context) -> None:
        apply(event, ctx)
        if event.data["n"] == 3:
            ctx.db.execute("insert into child values (3)")

    assert worker(handler).kinds(*(record(small, f"k{n}", n) for n in range(6))) == [
        "done" if n != 3 else "failed" for n in range(6)
    ]
    assert worker(handler).kinds(record(small, "alone", 3)) == ["failed"]
    assert [n for _, n in effects()] == [0, 1, 2, 4, 5]


def test_the_first_attempt_is_number_one_for_handler_and_ledger(small, worker, conn) -> None:
    seen = []
    w = worker(lambda event, ctx: seen.append((ctx.attempt, ctx.epoch)))
    w.run(record(small, "a"))
    assert seen == [(1, 0)]
    assert ledger(conn)[0][1] == 1


# -- lists ----------------------------------------------------------------------------------------------------


def test_a_list_never_passes_an_earlier_event_of_its_key(small, worker, effects) -> None:
    calls: list[list[int]] = []
    w = worker(lambda event, ctx: calls.append([event.data["n"]]), batch=100)

    @w.group.on("Listed", batch=True)
    def listed(events: list[Event], ctx: Context) -> None:
        calls.append([event.data["n"] for event in events])

    w.run(
        record(small, "a", 0, type="Listed"),
        record(small, "b", 1, type="Listed"),
        record(small, "c", 2),  # another key: the list goes on
        record(small, "c", 3, type="Listed"),
        record(small, "a", 4),  # the list with a's earlier event goes first
        record(small, "a", 5, type="Listed"),
    )
    assert calls == [[2], [0, 1, 3], [4], [5]]


@pytest.mark.parametrize("sends", [False, True])
def test_a_list_that_fails_is_bisected_to_the_event(small, worker, effects, sends) -> None:
    w = worker(apply, batch=100)

    @w.group.on("Listed", batch=True)
    def listed(events: list[Event], ctx: Context) -> None:
        if sends:
            for event in events:
                apply(event, ctx)
        if any(event.data["n"] == 13 for event in events):
            raise RuntimeError("thirteen")
        if not sends:
            for event in events:
                apply(event, ctx)

    records = [record(small, f"k{n}", n, type="Listed") for n in range(20)]
    kinds = w.kinds(*records)
    assert kinds == ["failed" if n == 13 else "done" for n in range(20)]
    assert sorted(n for _, n in effects()) == [n for n in range(20) if n != 13]


# -- anything together ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_whatever_fails_every_key_is_applied_up_to_its_first_failure_and_no_further(
    small, worker, effects, conn, seed
) -> None:
    """Python errors, SQL errors, undecodable bytes, doubles, lists, and connections that are lost meanwhile."""
    dice = random.Random(seed)
    fates: dict[int, str] = {}
    cut = {dice.randrange(60) for _ in range(3)}  # at these calls, the connection is lost

    def cut_off(ctx: Context) -> None:
        if calls[0] in cut:
            cut.discard(calls[0])
            conn.execute("select pg_terminate_backend(%s)", [ctx.db.info.backend_pid])
            conn.commit()
        calls[0] += 1

    calls = [0]

    def one(event: Event, ctx: Context) -> None:
        n = event.data["n"]
        cut_off(ctx)
        if fates[n] == "python":
            raise ValueError(n)
        apply(event, ctx)
        if fates[n] == "python after sql":
            raise ValueError(n)
        if fates[n] == "sql":
            ctx.db.execute("select 1/0")
        if fates[n] == "read":
            assert ctx.db.execute("select %s", [n]).fetchone() == (n,)

    w = worker(one, batch=100)

    @w.group.on("Listed", batch=True)
    def many(events: list[Event], ctx: Context) -> None:
        for event in events:
            one(event, ctx)

    records, ids = [], []
    for n in range(dice.randrange(1, 40)):
        fates[n] = dice.choice(["ok"] * 8 + ["read", "python", "python after sql", "sql", "bytes", "double"])
        id = dice.choice(ids) if fates[n] == "double" and ids else uuid.uuid4()
        r = record(small, f"k{dice.randrange(6)}", n, id=id, type=dice.choice(["Happened", "Listed"]))
        if fates[n] == "double" and ids:  # the same event again, under the same key
            r.key = records[ids.index(id)].key
        if fates[n] == "bytes":
            r.value = b"\0\0"
        records.append(r)
        ids.append(id)

    kinds = w.kinds(*records)
    expected, stopped, applied = [], set(), set()
    for n, r in enumerate(records):
        if ids[n] in applied and (kinds[n] == "duplicate" or r.key not in stopped):
            expected.append("duplicate")  # perhaps behind a failed one, too: there is nothing to apply
        elif r.key in stopped:
            expected.append("unrun")
        elif fates[n] in ("python", "python after sql", "sql", "bytes"):
            expected.append("failed")
            stopped.add(r.key)
        else:
            expected.append("done")
            applied.add(ids[n])
    assert kinds == expected
    done = [n for n, kind in enumerate(kinds) if kind == "done"]
    written = [n for _, n in effects()]
    assert sorted(written) == done
    for key in {r.key for r in records}:
        assert [n for n in written if records[n].key == key] == [n for n in done if records[n].key == key]
    assert len(ledger(conn)) == len(done)


# -- the database's condition ------------------------------------------------------------------------------------


def test_a_lost_connection_is_no_attempt_and_the_run_is_made_again(small, worker, effects, conn) -> None:
    attempts = []

    def handler(event: Event, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        apply(event, ctx)
        if len(attempts) == 2:
            conn.execute("select pg_terminate_backend(%s)", [ctx.db.info.backend_pid])
            conn.commit()

    assert worker(handler).kinds(*(record(small, f"k{n}", n) for n in range(3))) == ["done"] * 3
    assert effects() == [("k0", 0), ("k1", 1), ("k2", 2)]
    assert set(attempts) == {1}


def test_a_deadlock_is_no_events_failure(small, worker, effects, conn, database_url) -> None:
    conn.execute("create table pair (id int primary key, n int not null default 0)")
    conn.execute("insert into pair values (1), (2)")
    conn.commit()
    met = threading.Barrier(2)
    first = threading.local()

    def handler(event: Event, ctx: Context) -> None:
        order = (1, 2) if event.key == "a" else (2, 1)
        ctx.db.execute("update pair set n = n + 1 where id = %s", [order[0]])
        if not getattr(first, "met", False):
            first.met = True
            met.wait(10)
        ctx.db.execute("update pair set n = n + 1 where id = %s", [order[1]])

    kinds: list[str] = []
    workers = {key: worker(handler) for key in "ab"}
    threads = [
        threading.Thread(target=lambda key=key: kinds.extend(workers[key].kinds(record(small, key))))
        for key in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert kinds == ["done", "done"]
    assert conn.execute("select n from pair").fetchall() == [(2,), (2,)]


def test_an_event_claimed_by_another_worker_is_waited_for(small, worker, effects) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def handler(event: Event, ctx: Context) -> None:
        apply(event, ctx)
        inside.set()
        assert go_on.wait(20)

    same = record(small, "a", 1)
    kinds: list[list[str]] = []
    one = threading.Thread(target=lambda: kinds.append(worker(handler).kinds(same)))
    one.start()
    assert inside.wait(20)
    two = threading.Thread(target=lambda: kinds.append(worker(handler).kinds(same)))
    two.start()
    go_on.set()
    one.join(20)
    two.join(20)
    assert sorted(kinds) == [["done"], ["duplicate"]]
    assert effects() == [("a", 1)]


def test_while_stopping_nothing_waits_for_the_database(small, worker, conn) -> None:
    def handler(event: Event, ctx: Context) -> None:
        w.stopping.set()
        conn.execute("select pg_terminate_backend(%s)", [ctx.db.info.backend_pid])
        conn.commit()
        ctx.db.execute("select 1")

    w = worker(handler)
    assert w.kinds(record(small, "a")) == ["unrun"]


def test_a_connection_lost_while_it_is_made_is_waited_for_too(small, worker, effects, database_url) -> None:
    done = threading.Event()

    def terminate() -> None:
        query = (
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'stream-testers'"
        )
        with psycopg.connect(database_url, autocommit=True) as conn:
            while not done.is_set():
                conn.execute(query)

    terminator = threading.Thread(target=terminate)
    terminator.start()
    try:
        w = worker(apply)
        kinds = [w.execution.run(Run([record(small, f"k{n}")]), lambda: True)[0].kind for n in range(40)]
    finally:
        done.set()
        terminator.join()
    assert {"unrun"} <= set(kinds) <= {"unrun", "done"}


def test_a_database_that_does_not_answer_is_waited_for_until_told_to_give_up(small, worker) -> None:
    w = Worker(small, "postgresql://x@127.0.0.1:1/x", apply)
    asked = []

    def give_up() -> bool:
        asked.append(1)
        return len(asked) == 3

    outcomes = w.execution.run(Run([record(small, "a")]), give_up)
    assert [o.kind for o in outcomes] == ["unrun"]


def test_a_worker_that_freezes_in_a_transaction_loses_it(small, worker, effects, conn) -> None:
    """Its claim falls, so that its key goes on elsewhere."""
    frozen = threading.Event()

    def alive(pid: int) -> list[Any]:
        rows = conn.execute("select from pg_stat_activity where pid = %s", [pid]).fetchall()
        conn.commit()
        return rows

    def handler(event: Event, ctx: Context) -> None:
        apply(event, ctx)
        if not frozen.is_set():
            ctx.db.execute("set idle_in_transaction_session_timeout = '300ms'")
            pid = ctx.db.info.backend_pid
            frozen.set()
            until(lambda: not alive(pid), 20)

    assert worker(handler).kinds(record(small, "a", 1)) == ["done"]
    assert effects() == [("a", 1)]
