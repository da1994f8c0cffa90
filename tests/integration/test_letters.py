"""Dead letters: what replaying and discarding do to ledger, parked rows and keys, and how they are found."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from stream import TransientError, letters, replays
from stream.database import query
from stream.errors import Refused, StreamError
from stream.letters import Which
from stream.project import Project
from tests.support.letters import Troubled, rows, statuses
from tests.support.retries import make_due, parked, retry_records
from tests.support.small import record

Conn = psycopg.Connection[Any]
Effects = Callable[[], list[tuple[str, int]]]


@pytest.fixture
def db(database_url: str) -> Iterator[Conn]:
    """An operator's connection."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def group(small: Project, database_url: str, effects: Effects) -> Iterator[Callable[..., Troubled]]:
    made: list[Troubled] = []

    def make(**options: Any) -> Troubled:
        made.append(Troubled(small, database_url, **options))
        return made[-1]

    yield make
    for each in made:
        each.worker.execution.close()


def ids(db: Conn, **which: Any) -> list[int]:
    return [one.id for one in letters.each(db, Which(**which))]


def test_a_replayed_event_runs_once_as_if_it_had_never_been_tried(group, db, conn, effects) -> None:
    g = group()
    g.die(("a", 1))
    g.heal()
    [id] = ids(db)
    act = replays.replay(db, id)
    assert (act.result, act.freed) == ("replayed", False)
    assert rows(conn, "select count(*) from stream.ledger") == [(0,)]
    [head] = rows(
        conn, "select attempts, replays, due_at is not null, held, first_failed_at from stream.parked"
    )
    assert head == (0, 1, True, False, None)
    assert g.go_on(conn) == ["done"]
    assert effects() == [("a", 1)]
    assert g.tried == [(1, 1), (1, 1)]
    assert (parked(conn), retry_records(conn)) == ([], [])
    assert statuses(conn) == [(id, "replayed")]
    assert rows(conn, "select outcome, attempts from stream.ledger") == [("done", 1)]


def test_a_replay_goes_to_the_group_that_failed_and_to_no_other(group, db, conn) -> None:
    group().die(("a", 1))
    retry_records(conn, "testers.dlq")
    replays.replay(db, ids(db)[0])
    assert rows(conn, "select topic from stream.outbox union all select topic from stream.scheduled") == [
        ("testers.retry",)
    ]
    assert rows(conn, "select consumer_group from stream.parked") == [("testers",)]


def test_a_held_key_stays_until_its_head_is_replayed_and_then_goes_on_in_order(
    group, db, conn, effects
) -> None:
    g = group(on_dead="hold", batch=10)
    g.die(("a", 1))
    assert g.run(("a", 2), ("b", 9), ("a", 3)) == ["parked", "done", "parked"]
    make_due(conn)
    assert retry_records(conn) == []
    assert (g.go_on(conn), effects()) == ([], [("b", 9)])
    g.heal()
    act = replays.replay(db, ids(db)[0])
    assert (act.result, act.freed) == ("replayed", True)
    assert g.go_on(conn) == ["done", "done", "done"]
    assert effects() == [("b", 9), ("a", 1), ("a", 2), ("a", 3)]
    assert parked(conn) == []


def test_an_event_whose_effect_is_there_is_superseded_and_does_not_run(group, db, conn, effects) -> None:
    g = group()
    g.die(("a", 1))
    g.heal()
    conn.execute("update stream.ledger set outcome = 'done'")
    conn.commit()
    act = replays.replay(db, ids(db)[0])
    assert (act.result, act.reason) == ("superseded", "its effect is there already, the ledger says done")
    assert (parked(conn), g.go_on(conn), effects()) == ([], [], [])
    assert rows(conn, "select outcome from stream.ledger") == [("done",)]
    assert [status for _, status in statuses(conn)] == ["superseded"]


def test_a_key_held_by_an_event_whose_effect_is_there_goes_on(group, db, conn, effects) -> None:
    g = group(on_dead="hold")
    g.die(("a", 1))
    g.run(("a", 2))
    conn.execute("update stream.ledger set outcome = 'skipped' where outcome = 'dead'")
    conn.commit()
    act = replays.replay(db, ids(db)[0])
    assert (act.result, act.freed) == ("superseded", True)
    assert g.go_on(conn) == ["done"]
    assert (effects(), parked(conn)) == ([("a", 2)], [])


def test_a_letter_is_replayed_once(group, db, conn) -> None:
    g = group()
    g.die(("a", 1))
    [id] = ids(db)
    replays.replay(db, id)
    again = replays.replay(db, id)
    assert (again.result, again.reason) == ("closed", "it is replayed already")
    assert replays.discard(db, id, "late").result == "closed"
    g.heal()
    assert g.go_on(conn) == ["done"]
    assert replays.replay(db, id).result == "closed"


def test_a_letter_that_dies_again_is_a_new_one_and_is_not_replayed_for_ever(group, db, conn) -> None:
    g = group()
    g.die(("a", 1))
    for n in range(3):
        [id] = ids(db)
        assert replays.replay(db, id, most_replays=3).result == "replayed"
        assert g.go_on(conn) == ["dead"]
        assert letters.one(db, ids(db)[0]).replays == n + 1
    worn_out = replays.replay(db, ids(db)[0], most_replays=3)
    assert (worn_out.result, worn_out.reason) == ("worn out", "it was replayed 3 times before")
    assert parked(conn) == []
    choice = letters.choose(db, Which(group="testers"), most_replays=3)
    assert ([one.id for one in choice.letters], [one.id for one in choice.worn_out]) == ([], ids(db))


@pytest.mark.parametrize("on_dead", ["release", "hold"])
def test_the_time_an_event_may_go_on_failing_begins_anew(group, db, conn, on_dead) -> None:
    g = group(give_up_after="1h", on_dead=on_dead)
    g.trouble[1] = TransientError("down")
    g.run(("a", 1))
    conn.execute("update stream.parked set first_failed_at = first_failed_at - interval '2 hours'")
    conn.commit()
    assert g.go_on(conn) == ["dead"]
    replays.replay(db, ids(db)[0])
    make_due(conn)
    assert g.worker.wake(*retry_records(conn)) == ["parked"]
    g.heal()
    assert g.go_on(conn) == ["done"]


def test_errors_of_all_tries_are_kept_newest_first(group, db, conn) -> None:
    g = group(attempts=2)
    g.die(("a", 1), error=ValueError("one"))
    g.go_on(conn)
    replays.replay(db, ids(db)[0])
    g.trouble[1] = KeyError("two")
    g.go_on(conn)
    [last] = letters.details(db, Which())
    assert [(e["attempt"], e["class"]) for e in last.errors] == [
        (2, "KeyError"), (1, "KeyError"), (2, "ValueError"), (1, "ValueError")
    ]  # fmt: skip
    assert (last.attempts, last.replays, last.kind) == (2, 1, "exhausted")


def test_a_replay_before_what_waits_runs_first_and_one_behind_it_wakes_nobody(
    group, db, conn, effects
) -> None:
    g = group()
    g.die(("a", 1), ("a", 3))
    first, second = ids(db)
    g.heal()
    g.trouble[2] = TransientError("not yet")
    g.run(("a", 2))  # between the two in its number only: it stands last
    retry_records(conn)
    replays.replay(db, second)
    replays.replay(db, first)
    assert [row[:2] for row in parked(conn)] == [
        (row[0], a) for row, a in zip(parked(conn), (0, 0, 1), strict=True)
    ]
    assert len(retry_records(conn)) == 2  # each was the lowest when it came
    g.heal()
    conn.execute("select stream.leave_live_heads('testers', array(select lane from stream.parked))")
    conn.commit()
    g.go_on(conn)
    assert [n for _, n in effects()] == [1, 3, 2]

    g.die(("b", 5), ("b", 6))
    five, six = ids(db)
    replays.replay(db, five)
    retry_records(conn)
    replays.replay(db, six)
    assert retry_records(conn) == []


def test_a_discarded_letter_never_runs_and_frees_the_key_it_held(group, db, conn, effects) -> None:
    g = group(on_dead="hold")
    g.die(("a", 1))
    g.run(("a", 2))
    g.heal()
    act = replays.discard(db, ids(db)[0], "a test order")
    assert (act.result, act.freed) == ("discarded", True)
    assert g.go_on(conn) == ["done"]
    assert (effects(), parked(conn)) == ([("a", 2)], [])
    assert sorted(rows(conn, "select outcome from stream.ledger")) == [("dead",), ("done",)]
    [(status, reason, by)] = rows(conn, "select status, resolved_reason, resolved_by from stream.dead_letter")
    assert (status, reason) == ("discarded", "a test order")
    assert "@" in by


def test_records_without_a_key_are_replayed_in_their_partitions_order(group, db, conn, effects) -> None:
    g = group(on_dead="hold")
    g.die((None, 1))
    assert g.run((None, 2)) == ["parked"]
    g.heal()
    replays.replay(db, ids(db)[0])
    assert g.go_on(conn) == ["done", "done"]
    assert [n for _, n in effects()] == [1, 2]


def test_bytes_that_are_no_event_can_be_replayed_and_die_again(group, small, db, conn) -> None:
    g = group()
    g.worker.run(record(small, "a", value=b"garbage"))
    [id] = ids(db)
    assert letters.decoded(letters.one(db, id), small.codec) is None
    replays.replay(db, id)
    assert g.go_on(conn) == ["dead"]
    assert bytes(letters.one(db, id + 1).value or b"") == b"garbage"


def test_letters_of_a_key_are_taken_in_its_order_whenever_they_died(group, db, conn, effects) -> None:
    g = group()
    g.die(("a", 1), ("b", 2), ("a", 3), ("b", 4))
    replays.replay(db, ids(db)[0])
    g.go_on(conn)  # a's first event is the youngest letter now
    choice = letters.choose(db, Which(group="testers"))
    assert (choice.keys(), [one.id for one in choice.letters]) == (2, [2, 4, 5, 3])
    g.heal()
    for one in choice.letters:
        replays.replay(db, one.id)
    g.go_on(conn)
    assert [n for key, n in effects() if key == "a"] == [1, 3]
    assert [n for key, n in effects() if key == "b"] == [2, 4]


def test_what_dies_after_the_choice_is_not_in_it_and_counts_as_dead_again(group, db, conn) -> None:
    g = group()
    g.die(*((f"k{n}", n) for n in range(6)))
    choice = letters.choose(db, Which(group="testers"))
    g.heal(range(4))  # 4 and 5 die again at once

    def go_on(_: replays.Replaying) -> None:
        g.go_on(conn)

    run = replays.Replaying(db, [one.id for one in choice.letters], choice.up_to, 1000.0)
    run.run()
    go_on(run)
    run.count_dead()
    assert run.acts == {"replayed": 6}
    assert (run.passed, run.died_again) == (6, 2)
    g.die(("other", 9))
    run.count_dead()
    assert run.died_again == 2
    again = letters.choose(db, Which(group="testers", up_to=choice.up_to))
    assert again.letters == []
    choice = letters.choose(db, Which(group="testers"))
    g.heal()
    run = replays.Replaying(db, [one.id for one in choice.letters], choice.up_to, 1000.0)
    run.run()
    g.go_on(conn)
    run.count_dead()
    assert (run.passed, run.died_again) == (3, 0)


def test_a_run_that_is_stopped_goes_on_where_it_was(group, db, conn) -> None:
    group().die(*((f"k{n}", n) for n in range(10)))
    choice = letters.choose(db, Which(group="testers"))
    run = replays.Replaying(db, [one.id for one in choice.letters], choice.up_to, 1000.0)
    told: list[int] = []

    def stop(run: replays.Replaying) -> None:
        told.append(run.passed)
        run.stopping.set()

    run.tell = stop
    replays_told, replays.TELL_EVERY_S = replays.TELL_EVERY_S, 0.0
    try:
        run.run()
    finally:
        replays.TELL_EVERY_S = replays_told
    assert told == [1]
    assert Counter(status for _, status in statuses(conn)) == {"open": 9, "replayed": 1}
    left = letters.choose(db, Which(group="testers", up_to=choice.up_to))
    assert [one.id for one in left.letters] == [one.id for one in choice.letters][1:]


def test_what_was_done_is_written_down(group, db, conn) -> None:
    group().die(("a", 1), ("b", 2))
    first, second = ids(db)
    replays.replay(db, first)
    replays.discard(db, second, "a test order")
    found = rows(
        conn, "select action, target, result, reason, parameters from stream.operator_action order by id"
    )
    assert [row[:4] for row in found] == [
        ("dlq replay", f"letter {first} (testers, things a)", "replayed", "replay 1 of at most 5"),
        ("dlq discard", f"letter {second} (testers, things b)", "discarded", "a test order"),
    ]
    assert found[1][4]["event_id"] == str(letters.one(db, second).event_id)


def test_a_key_somebody_works_on_is_waited_for_and_then_refused(
    group, db, conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream.operators.LOCK_TIMEOUT", "200ms")
    group().die(("a", 1), ("b", 2))
    first, second = ids(db)
    conn.execute("select stream.lock_lanes(array[stream.parked_lane('testers', 'things', 'a', 0)])")
    with pytest.raises(Refused, match="did not end within 200ms"):
        replays.replay(db, first)
    run = replays.Replaying(db, [first, second], second, 1000.0)
    run.run()
    conn.rollback()
    assert (run.acts, len(run.problems)) == ({"replayed": 1}, 1)
    assert [status for _, status in statuses(conn)] == ["open", "replayed"]


def test_operators_and_a_worker_on_the_same_keys_do_each_letter_once(
    group, db, conn, database_url, effects
) -> None:
    g = group(on_dead="hold", batch=5)
    g.die(*((f"k{n}", n) for n in range(30)))
    g.run(*((f"k{n}", n + 100) for n in range(30)))
    g.heal()
    chosen = ids(db)
    done = threading.Event()

    def operate(_: int) -> list[str]:
        with psycopg.connect(database_url, autocommit=True) as mine:
            return [replays.replay(mine, id).result for id in chosen]

    def work() -> None:
        with psycopg.connect(database_url) as mine:
            while not done.is_set() or parked(mine):
                if woken := retry_records(mine):
                    g.worker.wake_all(*woken)

    with ThreadPoolExecutor(5) as pool:
        worker = pool.submit(work)
        results = [result for found in pool.map(operate, range(3)) for result in found]
        done.set()
        worker.result(30)
    assert Counter(results) == {"replayed": 30, "closed": 60}
    assert sorted(n for _, n in effects()) == [*range(30), *range(100, 130)]
    for k in range(30):
        assert [n for key, n in effects() if key == f"k{k}"] == [k, k + 100]


def test_there_is_no_letter_of_that_number(db) -> None:
    with pytest.raises(StreamError, match="there is no dead letter 41"):
        replays.replay(db, 41)


def test_letters_are_chosen_by_all_that_is_given(group, small, db, conn) -> None:
    g = group(attempts=1)
    g.die(("a", 1), ("b", 2))
    g.die(("a", 3), error=ValueError("no"))
    g.worker.run(record(small, "c", value=b"garbage"))
    conn.execute("update stream.dead_letter set last_failed_at = '2026-08-02 14:00+00' where id = 2")
    conn.commit()
    one, two, three, four = ids(db)
    assert ids(db, group="nobody") == []
    assert (
        ids(db, error_class="PermanentError")
        == ids(db, error_class="stream.errors.PermanentError")
        == [one, two]
    )
    assert ids(db, error_class="Error") == []
    assert ids(db, stage="decode") == [four]
    assert ids(db, key=b"a") == [one, three]
    assert ids(db, since=datetime.now(UTC) - timedelta(hours=1)) == [one, three, four]
    assert ids(db, until=datetime(2026, 8, 2, 14, 0, 0, 1, tzinfo=UTC)) == [two]
    assert ids(db, until=datetime(2026, 8, 2, 14, tzinfo=UTC)) == []
    assert ids(db, ids=[two, four], key=b"b") == [two]
    assert ids(db, up_to=two) == [one, two]
    fingerprint = letters.one(db, three).fingerprint
    assert ids(db, fingerprint=fingerprint) == [three]
    alike = letters.groups(db, Which())
    assert [(each.count, each.newest) for each in alike if each.error_class.endswith("PermanentError")] == [
        (2, two)
    ]
    assert len(alike) == 3


FILL = """
insert into stream.dead_letter (
    consumer_group, topic, partition, "offset", event_id, type, key, value, header_names, header_values, timestamp,
    kind, stage, error_class, error_message, error_stack, errors, fingerprint, attempts, first_failed_at,
    last_failed_at, worker, on_dead, deploy_fault, status)
select 'group' || n % 3, 'things', 0, n, gen_random_uuid(), 'Happened', convert_to('k' || n, 'UTF8'),
       convert_to(repeat('v', 600), 'UTF8'), '{}', '{}', now(), 'permanent', 'handler', 'app.Error' || n % 7,
       'message ' || n, repeat('stack', 300), '[]', 'f' || n % 21, 1, now(), now(), 'w', 'release', false,
       case when n % 10 = 0 then 'replayed' else 'open' end
from generate_series(1, 50000) n
"""


def test_50000_letters_are_grouped_without_being_read(db) -> None:
    db.execute(FILL)
    db.execute("vacuum analyze stream.dead_letter")
    found = letters.groups(db, Which())
    assert (len(found), sum(each.count for each in found)) == (21, 45_000)
    one = found[0]
    assert one.sample == f"message {one.newest}"
    for which in (Which(), Which(group="group1"), Which(fingerprint="f3"), Which(error_class="Error4")):
        lines = [
            line for (line,) in db.execute(f"explain {query('letter_groups')}".encode(), which.parameters)
        ]
        scans = [line for line in lines if "Scan" in line]
        assert any("Index Only Scan using dead_letter_open" in line for line in scans), lines
        assert not any("Seq Scan" in line for line in scans), lines
    assert len(letters.choose(db, Which(group="group1")).letters) == 15_000
