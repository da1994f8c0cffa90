"""Ordered retry: a failed event holds its own key and no other, and everything runs in order in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from stream import Context, Event, PermanentError, TransientError
from stream.events import event_id_of
from stream.lanes import Run
from stream.outcomes import BUSY
from stream.parking import lane_number
from tests.support.retries import RetryingWorker, make_due, parked, retry_records
from tests.support.small import record

INSERT = "insert into effect (event_id, key, n) values (%s, %s, %s)"


@pytest.fixture
def worker(retrying: Callable[..., RetryingWorker]) -> Callable[..., RetryingWorker]:
    return retrying


def test_failures_that_successes_follow_in_the_same_run_open_no_breaker(worker, small, effects) -> None:
    down = {f"k{n}" for n in range(20, 30)}

    def handler(event: Event, ctx: Context) -> None:
        if event.key in down:
            raise TransientError("not now")

    w = worker(handler, batch=50)
    records = [record(small, f"k{n}", n) for n in range(50)]
    w.run(*records)
    assert w.health.take_wishes() == (None, None)
    down.update(f"k{n}" for n in range(40, 50))
    w.run(*[record(small, f"k{n}", n) for n in range(50)])
    assert w.health.take_wishes()[0] is not None


class Fails:
    """A handler that fails for the numbers it is told to, once each try while they are there."""

    def __init__(self, *numbers: int, error: BaseException | None = None, after_sql: bool = False) -> None:
        self.numbers = set(numbers)
        self.attempts: list[tuple[int, int]] = []
        self._error = error or TransientError("not now")
        self._after_sql = after_sql

    def __call__(self, event: Event, ctx: Context) -> None:
        n = event.data["n"]
        self.attempts.append((n, ctx.attempt))
        if self._after_sql or n not in self.numbers:
            ctx.db.execute(INSERT, [event.id, event.key, n])
        if n in self.numbers:
            raise self._error


def letters(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    rows = conn.execute(
        "select kind, stage, error_class, attempts, status from stream.dead_letter order by id"
    ).fetchall()
    conn.commit()
    return rows


def outcomes(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    rows = conn.execute("select outcome, attempts from stream.ledger order by event_id, at").fetchall()
    conn.commit()
    return sorted(rows)


def test_the_lane_is_one_number_in_sql_and_python(conn) -> None:
    for key, partition in ((b"536365", 3), (None, 3), (b"\xff\x00", 0), (b"", 1)):
        [(number,)] = conn.execute(
            "select stream.parked_lane('g', 'orders', %s, %s)", [key, partition]
        ).fetchall()
        assert number == lane_number("g", "orders", key, partition)


@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize("after_sql", [False, True])
def test_a_failed_event_holds_its_key_and_runs_before_what_follows_it(
    small, worker, effects, conn, batch, after_sql
) -> None:
    handler = Fails(1, after_sql=after_sql)
    w = worker(handler, batch=batch)
    records = [
        record(small, "bad", 1),
        record(small, "good", 10),
        record(small, "bad", 2),
        record(small, "good", 11),
    ]
    if batch == 1:
        assert [w.kinds(r) for r in records] == [["parked"], ["done"], ["parked"], ["done"]]
    else:
        assert w.kinds(*records) == ["parked", "done", "parked", "done"]
    assert effects() == [("good", 10), ("good", 11)]
    assert parked(conn) == [(records[0].offset, 1, True, False), (records[2].offset, 0, False, False)]
    handler.numbers.clear()
    make_due(conn)
    while woken := retry_records(conn):
        w.wake(*woken)
    assert effects()[2:] == [("bad", 1), ("bad", 2)]
    assert parked(conn) == []
    assert handler.attempts[-2:] == [(1, 2), (2, 1)]
    assert outcomes(conn) == [("done", 1)] * 3 + [("done", 2)]


def test_an_event_costs_no_statement_more_where_nothing_is_parked(small, worker, effects) -> None:
    w = worker(Fails())
    w.run(record(small, "a", 1))
    connection = w.execution._transactions.connection()
    before = connection.sent
    assert w.kinds(record(small, "a", 2)) == ["done"]
    assert connection.sent - before == 4, "begin, claim, the handler's own, commit"


def test_the_first_event_of_another_key_in_the_same_run_is_not_touched(small, worker, effects, conn) -> None:
    w = worker(Fails(3), batch=10)
    assert w.kinds(*(record(small, f"k{n}", n) for n in range(6))) == ["done"] * 3 + ["parked"] + ["done"] * 2
    assert len(parked(conn)) == 1


def test_a_doubled_early_or_unreadable_retry_record_burns_no_attempt(small, worker, effects, conn) -> None:
    handler = Fails(1)
    w = worker(handler)
    w.run(record(small, "bad", 1))
    [woken] = retry_records(conn)
    conn.execute("update stream.parked set due_at = clock_timestamp() + interval '1 hour'")
    conn.commit()
    assert w.wake(woken) == []
    assert w.wake(woken, woken) == []
    woken.headers = [("stream.error.topic", b"\xff")]
    assert w.wake(woken) == []
    assert len(handler.attempts) == 1
    assert retry_records(conn) == []


def test_a_retry_record_keeps_key_value_and_headers_and_says_why(small, worker, effects, conn) -> None:
    sent = record(small, "bad", 1)
    sent.headers = [
        *sent.headers,
        ("note", b"\xff"),
        ("note", None),
        ("stream.error.class", b"old"),
        ('q"\\', b"x"),
    ]
    worker(Fails(1)).run(sent)
    [copy] = retry_records(conn)
    kept = [pair for pair in sent.headers if pair[0] != "stream.error.class"]
    assert (copy.key, copy.value, copy.headers[: len(kept)]) == (sent.key, sent.value, kept)
    added = dict(copy.headers[len(kept) :])
    assert added["stream.error.class"] == b"stream.errors.TransientError"
    assert added["stream.error.offset"] == str(sent.offset).encode()
    assert added["stream.error.attempts"] == b"1"
    assert "stream.error.stacktrace" not in added


def test_a_permanent_failure_is_dead_at_once_and_its_key_goes_on(small, worker, effects, conn) -> None:
    w = worker(Fails(1, error=PermanentError("no lines"), after_sql=True), batch=10)
    bad, behind = record(small, "bad", 1), record(small, "bad", 2)
    assert w.kinds(bad, behind, record(small, "good", 3)) == ["dead", "unrun", "done"]
    assert w.kinds(behind) == ["done"]
    assert effects() == [("good", 3), ("bad", 2)]
    assert letters(conn) == [("permanent", "handler", "stream.errors.PermanentError", 1, "open")]
    assert outcomes(conn) == [("dead", 1), ("done", 1), ("done", 1)]
    [dead] = retry_records(conn, "testers.dlq")
    headers = dict(dead.headers)
    assert (dead.key, dead.value) == (bad.key, bad.value)
    assert headers["stream.error.kind"] == b"permanent"
    assert b"PermanentError" in headers["stream.error.stacktrace"]
    assert parked(conn) == []
    assert w.kinds(bad) == ["duplicate"]


def test_a_group_that_holds_its_dead_keeps_the_key(small, worker, effects, conn) -> None:
    w = worker(Fails(1, error=PermanentError("no lines")), on_dead="hold")
    bad, behind = record(small, "bad", 1), record(small, "bad", 2)
    assert w.kinds(bad) + w.kinds(behind) == ["dead", "parked"]
    assert parked(conn) == [(bad.offset, 1, False, True), (behind.offset, 0, False, False)]
    assert retry_records(conn) == []
    assert len(letters(conn)) == 1


@pytest.mark.parametrize("on_dead", ["release", "hold"])
def test_attempts_are_the_limit_of_an_ordinary_failure(small, worker, effects, conn, on_dead) -> None:
    handler = Fails(1, error=ValueError("never"))
    w = worker(handler, attempts=3, on_dead=on_dead)
    assert w.kinds(record(small, "bad", 1)) + w.kinds(record(small, "bad", 2)) == ["parked", "parked"]
    kinds: list[str] = []
    for _ in range(6):
        make_due(conn)
        kinds += w.wake(*retry_records(conn))
    assert [attempt for n, attempt in handler.attempts if n == 1] == [1, 2, 3]
    assert letters(conn) == [("exhausted", "handler", "ValueError", 3, "open")]
    [(errors,)] = conn.execute("select errors from stream.dead_letter").fetchall()
    assert [(e["attempt"], e["class"], e["worker"]) for e in errors] == [
        (n, "ValueError", "w1") for n in (3, 2, 1)
    ]
    if on_dead == "release":
        assert (effects(), parked(conn)) == ([("bad", 2)], [])
        assert kinds == ["parked", "dead", "done"]
    else:
        assert (effects(), len(parked(conn))) == ([], 2)


def test_unavailable_has_no_limit_but_time(small, worker, effects, conn) -> None:
    w = worker(Fails(1), attempts=2, give_up_after="1h")
    w.run(record(small, "bad", 1))
    for _ in range(4):
        make_due(conn)
        assert w.wake(*retry_records(conn)) == ["parked"]
    conn.execute("update stream.parked set first_failed_at = first_failed_at - interval '2 hours'")
    make_due(conn)
    assert w.wake(*retry_records(conn)) == ["dead"]
    assert letters(conn) == [("unavailable", "handler", "stream.errors.TransientError", 6, "open")]


def test_bytes_that_are_no_event_are_dead_letters_with_all_they_came_with(
    small, worker, effects, conn
) -> None:
    good = record(small, "x").value
    bad = {
        b"random": (b"\x17\x03garbage", [("a", b"\xff\xfe"), ("b", None)]),
        b"unknown": (b"\0\0\0\x27\x0f\x02", []),
        b"truncated": (good[:-1], []),
        b"trailing": (good + b"x", []),
        b"header": (good, [("ce_type", b"\xff\xfe")]),
        b"\xff\xfe": (good, []),
        b"empty": (b"", []),
    }
    records = [record(small, key, value=value, headers=headers) for key, (value, headers) in bad.items()]
    assert worker(Fails(), batch=20).kinds(*records, record(small, "good", 1)) == ["dead"] * len(bad) + [
        "done"
    ]
    assert effects() == [("good", 1)]
    letters = conn.execute(
        "select key, value, header_names, header_values, kind from stream.dead_letter"
    ).fetchall()
    assert {k: (v, list(zip(n, w, strict=True))) for k, v, n, w, _ in letters} == bad
    assert {kind for *_, kind in letters} == {"decode"}
    copies = {r.key: r for r in retry_records(conn, "testers.dlq")}
    for key, (value, headers) in bad.items():
        assert (copies[key].value, copies[key].headers[: len(headers)]) == (value, headers)
        assert dict(copies[key].headers)["stream.error.kind"] == b"decode"


def test_a_copy_that_would_not_fit_its_topic_leaves_the_payload_out_and_keeps_the_position(
    small, worker, effects, conn
) -> None:
    conn.execute("update stream.group_state set most_record_bytes = 5000")
    conn.commit()
    big = record(small, "big", value=b"\x01" * 4500)
    assert worker(Fails()).kinds(big) == ["dead"]
    [copy] = retry_records(conn, "testers.dlq")
    assert copy.value is None
    assert dict(copy.headers)["stream.error.offset"] == str(big.offset).encode()
    assert conn.execute("select octet_length(value) from stream.dead_letter").fetchall() == [(4500,)]


def test_records_without_a_key_wait_for_their_partition(small, worker, effects, conn) -> None:
    handler = Fails(1)
    w = worker(handler)
    assert w.kinds(record(small, None, 1)) + w.kinds(record(small, None, 2)) == ["parked", "parked"]
    assert w.kinds(record(small, None, 3, partition=1)) == ["done"]
    handler.numbers.clear()
    make_due(conn)
    while woken := retry_records(conn):
        w.wake(*woken)
    assert [n for _, n in effects()] == [3, 1, 2]


def test_many_keys_are_woken_in_one_run(small, worker, effects, conn) -> None:
    handler = Fails(*range(20))
    w = worker(handler, batch=50)
    w.run(*(record(small, f"k{n % 20}", n) for n in range(60)))
    assert len(parked(conn)) == 60
    handler.numbers.clear()
    make_due(conn)
    rounds = 0
    while woken := retry_records(conn):
        w.wake(*woken)
        rounds += 1
    assert rounds <= 3
    assert sorted(n for _, n in effects()) == list(range(60))
    for k in range(20):
        assert [n for key, n in effects() if key == f"k{k}"] == [k, k + 20, k + 40]


def test_a_handler_list_gets_another_try_alone(small, worker, effects, conn) -> None:
    calls: list[list[int]] = []
    w = worker(Fails(), batch=50)
    heal = False

    @w.group.on("Listed", batch=True)
    def listed(events: list[Event], ctx: Context) -> None:
        calls.append([event.data["n"] for event in events])
        if not heal and any(event.data["n"] == 2 for event in events):
            raise ValueError("two")
        for event in events:
            ctx.db.execute(INSERT, [event.id, event.key, event.data["n"]])

    kinds = w.kinds(
        *(record(small, f"k{n}", n, type="Listed") for n in range(5)), record(small, "k2", 9, type="Listed")
    )
    assert kinds == ["done", "done", "parked", "done", "done", "parked"]
    heal = True
    calls.clear()
    make_due(conn)
    while woken := retry_records(conn):
        w.wake(*woken)
    assert calls == [[2], [9]]


def test_what_fails_only_at_the_commit_is_parked_too(small, worker, effects, conn) -> None:
    conn.execute("create table parent (n int primary key)")
    conn.execute("create table child (n int references parent deferrable initially deferred)")
    conn.commit()

    def handler(event: Event, ctx: Context) -> None:
        ctx.db.execute(INSERT, [event.id, event.key, event.data["n"]])
        if event.data["n"] == 3:
            ctx.db.execute("insert into child values (3)")

    w = worker(handler, batch=10, attempts=2)
    kinds = w.kinds(*(record(small, f"k{n}", n) for n in range(6)), record(small, "k3", 7))
    assert kinds == ["done"] * 3 + ["parked"] + ["done"] * 2 + ["parked"]
    make_due(conn)
    assert w.wake(*retry_records(conn)) == ["dead"]  # with its follower in one transaction, then alone
    assert letters(conn)[0][:2] == ("exhausted", "commit")
    assert w.wake(*retry_records(conn)) == ["done"]
    assert parked(conn) == []


def test_a_double_of_a_parked_event_at_another_offset_is_applied_once(small, worker, effects, conn) -> None:
    handler = Fails(1)
    w = worker(handler, batch=10)
    one = record(small, "bad", 1)
    again = record(small, "bad", 1, headers=one.headers)
    w.run(one)
    assert w.kinds(again, one) == ["parked", "duplicate"]
    handler.numbers.clear()
    make_due(conn)
    kinds: list[str] = []
    while woken := retry_records(conn):
        kinds += w.wake(*woken)
    assert sorted(kinds) == ["done", "duplicate"]
    assert effects() == [("bad", 1)]


def test_emits_of_a_failed_try_are_not_sent_and_those_of_the_good_one_are_once(
    small, worker, effects, conn
) -> None:
    fails = {1}

    def handler(event: Event, ctx: Context) -> None:
        ctx.emit("Echoed", key=event.key, data={"n": event.data["n"]})
        if event.data["n"] in fails:
            raise ValueError("no")

    w = worker(handler, batch=10)
    w.run(record(small, "a", 1), record(small, "b", 2))
    fails.clear()
    make_due(conn)
    w.wake(*retry_records(conn))
    assert [
        bytes(k) for (k,) in conn.execute("select key from stream.outbox where topic = 'echoes' order by id")
    ] == [b"b", b"a"]


@pytest.fixture
def hold_lane(conn: psycopg.Connection[Any]) -> Callable[[bytes], None]:
    """Somebody at work on a key, until the connection's transaction ends."""

    def hold(key: bytes) -> None:
        conn.execute("select stream.lock_lanes(%s)", [[lane_number("testers", "things", key, 0)]])

    return hold


def test_a_key_that_somebody_works_on_is_not_waited_for(
    small, worker, effects, conn, hold_lane, database_url
) -> None:
    w = worker(Fails(1), batch=10)
    w.run(record(small, "bad", 1))
    hold_lane(b"bad")
    behind = record(small, "bad", 2)
    assert w.run(record(small, "good", 3), behind)[1] is BUSY
    with psycopg.connect(database_url) as other:
        [woken] = retry_records(other)
    assert w.wake(woken, woken) == []
    assert w.execution.run(Run([woken], retry=True)) == [BUSY]
    conn.rollback()
    assert effects() == [("good", 3)]
    assert w.kinds(behind) == ["parked"]
    assert w.execution.run(Run([woken], retry=True))[0] is not BUSY


def test_a_claim_that_somebody_holds_sends_its_run_to_the_back_and_blames_no_suspect(
    small, worker, effects, conn, monkeypatch
) -> None:
    monkeypatch.setattr("stream.transaction.LOCK_TIMEOUT_S", 0.2)
    w = worker(Fails())
    event = record(small, "a", 1)
    conn.execute(
        "insert into stream.ledger (consumer_group, event_id, epoch, attempts, worker)"
        " values ('testers', %s, 0, 1, 'frozen')",
        [event_id_of(event)],
    )
    assert w.kinds(event) == ["unrun"]
    run = Run([event], suspect=True)
    assert [outcome.kind for outcome in w.execution.run(run)] == ["unrun"]
    conn.rollback()
    assert conn.execute("select count(*) from stream.suspect").fetchall() == [(0,)]
    conn.rollback()
    assert w.kinds(event) == ["done"]
