"""History run again: what was applied is applied once more in its epoch, once; what was not, is as it ever was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from stream import Context, Event, PermanentError, reapplies, replays
from stream.epochs import Epochs, Range
from stream.events import Record
from stream.parked import keys as parked_keys
from stream.parked import retry
from stream.steps import written_down
from tests.support.retries import RetryingWorker, make_due, parked, retry_records
from tests.support.small import record
from tests.support.waiting import until


@pytest.fixture
def seen(conn: psycopg.Connection[Any]) -> Callable[[], list[tuple[int, int]]]:
    """(n, epoch) of each effect, in order."""
    conn.execute(
        "create table effect"
        " (seq bigint generated always as identity, event_id uuid, key text, n int not null, epoch int not null)"
    )
    conn.commit()

    def read() -> list[tuple[int, int]]:
        rows = conn.execute("select n, epoch from effect order by seq").fetchall()
        conn.commit()
        return rows

    return read


def apply(event: Event, ctx: Context) -> None:
    ctx.db.execute(
        "insert into effect (event_id, key, n, epoch) values (%s, %s, %s, %s)",
        [event.id, event.key, event.data["n"], ctx.epoch],
    )
    ctx.emit("Echoed", key=str(event.key), data={"n": event.data["n"]})


class Failing:
    """Applies, except for these numbers for as long as they are among them."""

    def __init__(self, *numbers: int, error: BaseException) -> None:
        self.numbers, self.error = set(numbers), error

    def __call__(self, event: Event, ctx: Context) -> None:
        if event.data["n"] in self.numbers:
            raise self.error
        apply(event, ctx)


def again(
    conn: psycopg.Connection[Any], epochs: Epochs, records: list[Record], old: int | None = None
) -> int:
    """Rewind to the first of these: as a new epoch."""
    low, high = records[0].offset, records[-1].offset + 1
    ranges = [Range("things", 0, low, high, high if old is None else old)]
    epoch = reapplies.plan(conn, "testers", ranges, who="the test", reason=None)
    reapplies.finish(conn, "testers", epoch)
    conn.commit()
    learn(conn, epochs)
    return epoch


def learn(conn: psycopg.Connection[Any], epochs: Epochs) -> None:
    columns = "epoch, topic, partition, from_offset, to_offset, old_offset"
    rows = conn.execute(f"select {columns} from stream.reapply").fetchall()
    conn.commit()
    epochs.learn((epoch, Range(*rest)) for epoch, *rest in rows)


def emitted(conn: psycopg.Connection[Any]) -> int:
    [(count,)] = conn.execute("select count(*) from stream.outbox where topic = 'echoes'").fetchall()
    conn.commit()
    return int(count)


def letters(conn: psycopg.Connection[Any]) -> list[tuple[str, int]]:
    rows = conn.execute("select status, epoch from stream.dead_letter order by id").fetchall()
    conn.commit()
    return rows


@pytest.mark.parametrize("batch", [1, 10])
def test_each_event_of_the_range_is_applied_once_more_and_emits_nothing(
    small, retrying, seen, conn, batch
) -> None:
    epochs = Epochs()
    w: RetryingWorker = retrying(apply, batch=batch, epochs=epochs)
    records = [record(small, "a", n) for n in range(4)]
    runs = [records] if batch > 1 else [[each] for each in records]
    for run in runs:
        w.run(*run)
    assert again(conn, epochs, records[1:]) == 1
    for _ in range(2):  # the second time, as after a crash
        for run in runs:
            w.run(*run)
    assert seen() == [(0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (3, 1)]
    assert emitted(conn) == 4
    assert again(conn, epochs, records[2:]) == 2
    for run in runs:
        w.run(*run)
    assert seen()[7:] == [(2, 2), (3, 2)]


def test_a_list_holds_events_of_one_epoch(small, retrying, seen, conn) -> None:
    lists = []

    def handler(event: Event, ctx: Context) -> None:
        apply(event, ctx)

    def handle(events: list[Event], ctx: Context) -> None:
        lists.append(([event.data["n"] for event in events], ctx.epoch))
        for event in events:
            apply(event, ctx)

    epochs = Epochs()
    w: RetryingWorker = retrying(handler, batch=10, epochs=epochs)
    w.group.handlers.clear()
    w.group.on("Happened", batch=True)(handle)
    records = [record(small, key, n) for n, key in enumerate("abab")]
    w.run(*records[:3])
    again(conn, epochs, records[1:], old=records[3].offset)
    assert w.kinds(*records) == ["duplicate", "done", "done", "done"]
    assert lists == [([0, 1, 2], 0), ([1, 2], 1), ([3], 0)]
    assert emitted(conn) == 4


def test_a_group_that_skips_them_writes_down_why(small, retrying, seen, conn) -> None:
    epochs = Epochs()
    w: RetryingWorker = retrying(apply, epochs=epochs, on_reapply="skip")
    records = [record(small, "a", n) for n in range(2)]
    w.run(records[0])
    again(conn, epochs, records, old=records[1].offset)
    assert w.kinds(records[0]) == ["skipped"]
    assert w.kinds(records[1]) == ["done"]  # it had never been applied
    assert seen() == [(0, 0), (1, 0)]
    reasons = conn.execute("select epoch, outcome, reason from stream.ledger order by at, epoch").fetchall()
    assert reasons == [
        *((0, "done", None), (1, "skipped", "not run again in epoch 1")),
        *((0, "done", None), (1, "done", None)),
    ]


def test_what_was_given_up_is_tried_as_for_the_first_time(small, retrying, seen, conn) -> None:
    handler, epochs = Failing(1, error=PermanentError("a bug")), Epochs()
    w: RetryingWorker = retrying(handler, batch=10, epochs=epochs)
    records = [record(small, "a", n) for n in range(3)]
    assert w.kinds(*records) == ["done", "dead", "unrun"]
    assert w.kinds(*records) == ["duplicate", "duplicate", "done"]
    again(conn, epochs, records)
    assert w.kinds(*records) == ["done", "dead", "unrun"]
    assert w.kinds(*records) == ["duplicate", "duplicate", "done"]
    assert letters(conn) == [("superseded", 0), ("open", 1)]
    handler.numbers.clear()
    again(conn, epochs, records)
    assert w.kinds(*records) == ["done", "done", "done"]
    assert seen() == [(0, 0), (2, 0), (0, 1), (2, 1), (0, 2), (1, 0), (2, 2)]
    assert letters(conn) == [("superseded", 0), ("superseded", 1)]
    assert emitted(conn) == 3


def test_an_event_that_died_of_its_second_run_is_replayed_in_it(small, retrying, seen, conn) -> None:
    handler, epochs = Failing(error=PermanentError("a bug")), Epochs()
    w: RetryingWorker = retrying(handler, batch=10, epochs=epochs)
    records = [record(small, "a", n) for n in range(2)]
    w.run(*records)
    again(conn, epochs, records)
    handler.numbers.add(1)
    assert w.kinds(*records) == ["done", "dead"]
    handler.numbers.clear()
    [(letter,)] = conn.execute("select id from stream.dead_letter").fetchall()
    conn.commit()
    assert replays.replay(conn, letter).result == "replayed"
    conn.commit()
    assert w.wake(*retry_records(conn)) == ["done"]
    assert seen() == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert w.kinds(*records) == ["duplicate", "duplicate"]


def test_what_is_parked_makes_way_and_is_run_in_its_turn(small, retrying, seen, conn) -> None:
    handler, epochs = Failing(1, error=ValueError("not yet")), Epochs()
    w: RetryingWorker = retrying(handler, batch=10, epochs=epochs)
    records = [record(small, "a", n) for n in range(3)]
    assert w.kinds(*records) == ["done", "parked", "parked"]
    again(conn, epochs, records)
    assert parked(conn) == []
    handler.numbers.clear()
    make_due(conn)
    assert w.wake(*retry_records(conn)) == []  # a call that comes late wakes nothing
    assert w.kinds(*records) == ["done", "done", "done"]
    assert seen() == [(0, 0), (0, 1), (1, 0), (2, 0)]


def test_a_held_key_is_freed_and_its_letter_closed_by_the_run(small, retrying, seen, conn) -> None:
    handler, epochs = Failing(1, error=PermanentError("a bug")), Epochs()
    w: RetryingWorker = retrying(handler, batch=10, epochs=epochs, on_dead="hold")
    records = [record(small, "a", n) for n in range(3)]
    assert w.kinds(*records) == ["done", "dead", "parked"]
    handler.numbers.clear()
    again(conn, epochs, records)
    assert letters(conn) == [("open", 0)]  # not lost, should the offset be moved on after all
    assert w.kinds(*records) == ["done", "done", "done"]
    assert seen() == [(0, 0), (0, 1), (1, 0), (2, 0)]
    assert letters(conn) == [("superseded", 0)]


def test_a_failure_in_the_second_run_is_tried_again_in_it(small, retrying, seen, conn) -> None:
    handler, epochs = Failing(error=ValueError("not yet")), Epochs()
    w: RetryingWorker = retrying(handler, batch=10, epochs=epochs)
    records = [record(small, "a", n) for n in range(3)]
    w.run(*records)
    again(conn, epochs, records)
    handler.numbers.add(1)
    assert w.kinds(*records) == ["done", "parked", "parked"]
    assert w.kinds(*records) == ["duplicate", "parked", "parked"]  # read again: they are there already
    handler.numbers.clear()
    make_due(conn)
    assert w.wake(*retry_records(conn)) == ["done", "done"]
    assert seen() == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert emitted(conn) == 3


def test_going_back_where_it_stood_runs_no_more_again_and_parks_what_made_way(
    small, retrying, seen, conn
) -> None:
    handler, epochs = Failing(2, error=ValueError("not yet")), Epochs()
    w: RetryingWorker = retrying(handler, batch=10, epochs=epochs)
    records = [record(small, "a", n) for n in range(4)]
    old = records[-1].offset + 1
    assert w.kinds(*records) == ["done", "done", "parked", "parked"]
    before = parked(conn)
    again(conn, epochs, records)
    w.run(records[0])
    reapplies.pass_over(conn, "testers", "things", 0, records[1].offset, old)
    conn.commit()
    learn(conn, epochs)
    assert parked(conn) == before
    assert w.kinds(records[0], records[1]) == ["duplicate", "duplicate"]
    handler.numbers.clear()
    make_due(conn)
    assert w.wake(*retry_records(conn)) == ["done", "done"]
    assert seen() == [(0, 0), (1, 0), (0, 1), (2, 0), (3, 0)]
    assert again(conn, epochs, records) == 2  # a number is given once


def test_a_double_outside_the_range_is_a_duplicate(small, retrying, seen, conn) -> None:
    handler, epochs = Failing(0, error=ValueError("not yet")), Epochs()
    w: RetryingWorker = retrying(handler, batch=10, epochs=epochs)
    records = [record(small, "a", 0)]
    w.run(*records)
    again(conn, epochs, records)
    handler.numbers.clear()
    w.run(*records)
    double = record(small, "a", 0)
    double.headers = records[0].headers
    assert w.kinds(double) == ["duplicate"]
    assert seen() == [(0, 0)]


@pytest.mark.parametrize("first_in_a_range", [False, True])
def test_a_double_in_a_newer_range_than_its_first_is_run_again_behind_it(
    small, retrying, seen, conn, first_in_a_range
) -> None:
    handler, epochs = Failing(0, error=ValueError("not yet")), Epochs()
    w: RetryingWorker = retrying(handler, batch=10, epochs=epochs)
    records = [record(small, "a", n) for n in (0, 1, 0)]
    records[2].headers = records[0].headers
    if first_in_a_range:
        again(conn, epochs, records)
    assert [w.kinds(each) for each in records] == [["parked"], ["parked"], ["parked"]]
    newest = again(conn, epochs, records[2:])
    assert w.kinds(records[2]) == ["parked"]
    handler.numbers.clear()
    make_due(conn)
    while parked(conn):
        w.wake(*retry_records(conn))
    assert seen() == [(0, 0), (1, 0), (0, newest)]
    assert emitted(conn) == 2


def test_a_double_that_waits_for_who_applies_the_first_is_run_again_behind_it(
    small, retrying, seen, conn
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slowly(event: Event, ctx: Context) -> None:
        entered.set()
        assert go_on.wait(20)
        apply(event, ctx)

    epochs = Epochs()
    first, second = (record(small, "a", 0) for _ in range(2))
    second.headers = first.headers
    again(conn, epochs, [second])
    slow: RetryingWorker = retrying(slowly, name="w1")
    w: RetryingWorker = retrying(apply, name="w2", epochs=epochs)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(slow.run, first)
        assert entered.wait(20)
        other = pool.submit(w.kinds, second)
        try:
            until(lambda: conn.execute("select from pg_locks where not granted").fetchall())
        finally:
            go_on.set()
        assert (one.result()[0].kind, other.result()) == ("done", ["done"])
    assert seen() == [(0, 0), (0, 1)]
    assert emitted(conn) == 1


def test_a_key_whose_head_is_a_double_of_another_keys_event_is_woken_again(
    small, retrying, seen, conn
) -> None:
    handler, epochs = Failing(0, error=ValueError("not yet")), Epochs()
    w: RetryingWorker = retrying(handler, batch=10, epochs=epochs)
    records = [record(small, "a", 0), record(small, "b", 0), record(small, "b", 1)]
    records[1].headers = records[0].headers
    again(conn, epochs, records[1:])
    assert [w.kinds(each) for each in records] == [["parked"]] * 3
    handler.numbers.clear()
    make_due(conn)
    w.wake_all(*retry_records(conn))
    assert seen() == [(0, 0), (0, 1), (1, 0)]
    assert parked(conn) == []


def test_what_people_do_with_an_event_is_told_of_the_epoch_it_was_parked_in(
    small, retrying, seen, conn
) -> None:
    w: RetryingWorker = retrying(Failing(0, error=ValueError("not yet")), epochs=(epochs := Epochs()))
    made = record(small, "a", 0)
    again(conn, epochs, [made])
    assert w.kinds(made) == ["parked"]
    [waiting] = parked_keys(conn)
    retry(conn, waiting)
    conn.commit()
    again(conn, epochs, [made])  # later
    asked = (["testers"], [waiting.event_id], made.key or b"", ["things"])
    found = [(of[2], step.what) for of, steps in written_down(conn, *asked).items() for step in steps]
    assert (1, "retried") in found


def test_what_is_planned_can_be_undone_until_it_is_finished(conn) -> None:
    ranges = [Range("things", 0, 3, 9, 8), Range("things", 1, 0, 5, 5)]
    count = "select count(*) from stream.reapply"
    epoch = reapplies.plan(conn, "testers", ranges, who="ann", reason="a bug in prices")
    reapplies.undo(conn, "testers", epoch)
    assert conn.execute(count).fetchone() == (0,)
    later = reapplies.plan(conn, "testers", ranges, who="ann", reason=None)
    assert later == epoch + 1
    reapplies.finish(conn, "testers", later)
    reapplies.undo(conn, "testers", later)  # too late
    assert conn.execute(count).fetchone() == (2,)


def test_what_is_parked_again_after_it_made_way_survives_the_next_range_and_its_undo(
    small, retrying, seen, conn
) -> None:
    handler, epochs = Failing(1, error=ValueError("not yet")), Epochs()
    w: RetryingWorker = retrying(handler, batch=10, epochs=epochs)
    records = [record(small, "a", n) for n in range(3)]
    w.run(*records)
    again(conn, epochs, records)
    assert w.kinds(*records) == ["done", "parked", "parked"]
    again(conn, epochs, records)
    reapplies.pass_over(conn, "testers", "things", 0, records[0].offset, records[-1].offset + 1)
    conn.commit()
    assert [offset for offset, *_ in parked(conn)] == [each.offset for each in records[1:]]


def test_what_was_applied_since_is_not_held_again(small, retrying, seen, conn) -> None:
    handler, epochs = Failing(1, error=PermanentError("a bug")), Epochs()
    w: RetryingWorker = retrying(handler, batch=10, epochs=epochs, on_dead="hold")
    records = [record(small, "b", 0), record(small, "a", 1)]
    w.run(*records)
    handler.numbers.clear()
    again(conn, epochs, records)
    assert w.kinds(records[1]) == ["done"]
    reapplies.pass_over(conn, "testers", "things", 0, records[0].offset, records[-1].offset + 1)
    conn.commit()
    assert parked(conn) == []


def test_letters_of_a_range_that_is_run_again(small, retrying, seen, conn) -> None:
    """Not replayed out of turn; one that is discarded meanwhile is not run."""
    handler, epochs = Failing(0, 1, error=PermanentError("a bug")), Epochs()
    w: RetryingWorker = retrying(handler, epochs=epochs)
    records = [record(small, key, n) for n, key in enumerate("ab")]
    for each in records:
        w.run(each)
    handler.numbers.clear()
    again(conn, epochs, records)
    act = replays.replay(conn, 1)
    assert (act.result, "in its turn" in act.reason) == ("closed", True)
    assert replays.discard(conn, 2, "not needed").result == "discarded"
    conn.commit()
    assert [w.kinds(each) for each in records] == [["done"], ["duplicate"]]
    assert seen() == [(0, 0)]


def test_what_was_skipped_is_run_as_for_the_first_time(small, retrying, seen, conn) -> None:
    skipping = True

    def handler(event: Event, ctx: Context) -> None:
        if skipping:
            return ctx.skip("a mistake")
        apply(event, ctx)

    epochs = Epochs()
    w: RetryingWorker = retrying(handler, epochs=epochs)
    made = record(small, "a", 0)
    w.run(made)
    skipping = False
    again(conn, epochs, [made])
    assert w.kinds(made) == ["done"]
    assert (seen(), emitted(conn)) == ([(0, 0)], 1)


def test_the_letter_of_a_second_run_is_closed_by_the_third(small, retrying, seen, conn) -> None:
    handler, epochs = Failing(error=PermanentError("a bug")), Epochs()
    w: RetryingWorker = retrying(handler, epochs=epochs)
    made = record(small, "a", 0)
    w.run(made)
    handler.numbers.add(0)
    again(conn, epochs, [made])
    assert w.kinds(made) == ["dead"]
    handler.numbers.clear()
    again(conn, epochs, [made])
    assert w.kinds(made) == ["done"]
    assert letters(conn) == [("superseded", 1)]
