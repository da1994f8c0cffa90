"""`stream parked`: which keys wait and why, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream import TransientError, app, parked
from stream.config import Config
from stream.errors import Refused
from stream.project import Project
from tests.support.cli import follow, hints, stream, stream_json
from tests.support.letters import Troubled, halt, rows, statuses
from tests.support.retries import parked as parked_rows
from tests.support.retries import retry_records
from tests.support.small import make_project

Conn = psycopg.Connection[Any]


@pytest.fixture
def small(config: Config, tmp_path: Path) -> Config:
    project = make_project(tmp_path / "small")
    small = replace(config, project=project.root)
    app.migrate(small, project)
    return small


@pytest.fixture
def group(small: Config, effects: Callable[[], list[tuple[str, int]]]) -> Iterator[Callable[..., Troubled]]:
    made: list[Troubled] = []

    def make(**options: Any) -> Troubled:
        made.append(Troubled(Project(small.project), small.database_url, **options))
        return made[-1]

    yield make
    for each in made:
        each.worker.execution.close()


def held(group: Callable[..., Troubled], *keys: str | None) -> Troubled:
    """A group that holds these keys: of each a dead event, 0, 1, 2 ..., and one behind it, 10, 11, 12 ..."""
    g = group(on_dead="hold")
    g.die(*((key, n) for n, key in enumerate(keys)))
    g.run(*((key, 10 + n) for n, key in enumerate(keys)))
    g.heal()
    return g


def test_with_nothing_parked_it_says_so(small: Config) -> None:
    result = stream(small, "parked", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing is parked" in result.stderr
    assert stream_json(small, "parked", "list") == []
    assert stream(small, "parked", "release").exit_code == 0


def test_each_key_is_listed_once_with_what_it_waits_for(small: Config, group, conn) -> None:
    held(group, "a")
    g = group()
    g.trouble[5] = TransientError("provider is down")
    g.run(("b", 5), ("b", 6), ("b", 7))
    a, b = stream_json(small, "parked", "list")
    assert (a["key"], a["state"], a["followers"], a["attempts"], a["letter"]) == ("a", "held", 1, 1, 1)
    assert (a["error_class"], a["error_message"]) == ("stream.errors.PermanentError", "no lines in 0")
    assert a["next_try_at"] is None
    assert (b["key"], b["state"], b["followers"], b["attempts"], b["letter"]) == ("b", "waiting", 2, 1, None)
    assert datetime.fromisoformat(b["next_try_at"]) >= datetime.fromisoformat(b["since"])
    text = stream(small, "parked", "list")
    header, first, second = text.stdout.splitlines()
    assert header.split()[:7] == ["GROUP", "TOPIC", "KEY", "STATE", "SINCE", "FOR", "FOLLOWERS"]
    assert first.split()[:4] == ["testers", "things", "a", "held"]
    assert "provider is down" in second
    assert hints(text)[:2] == ["stream dlq show 1", "stream dlq replay 1"]
    assert [one["key"] for one in stream_json(small, "parked", "list", "--key", "b")] == ["b"]
    assert stream_json(small, "parked", "list", "--topic", "echoes") == []


def test_the_list_names_the_groups_of_its_keys_that_run_nothing(small: Config, group, conn) -> None:
    held(group, "a")
    for name in ("testers", "quiet", "others"):
        halt(conn, name)
    text = "is held (halted: ten in a row): its events run once it goes on"
    for words in ((), ("--format", "json"), ("--group", "testers")):
        listed = stream(small, "parked", "list", *words)
        assert listed.stderr.startswith(f"group testers {text}\n-> stream groups describe testers\n")
        assert listed.stderr.count(text) == 1
    none = stream(small, "parked", "list", "--group", "quiet").stderr
    assert f"group quiet {text}" in none
    assert none.count(text) == 1


def test_a_group_that_nobody_knows_is_no_all_clear(small: Config, group, conn) -> None:
    g = group()
    g.trouble[1] = TransientError("down")
    g.run(("a", 1))  # parked, and of no group of the project
    for words in (("list",), ("release",), ("discard", "--reason", "no")):
        assert stream(small, "parked", *words, "--group", "testers").exit_code == 0, words
        result = stream(small, "parked", *words, "--group", "nope")
        assert (result.exit_code, result.stdout) == (2, ""), words
        assert "unknown group 'nope'; known are testers" in result.stderr


def test_a_held_key_that_is_released_goes_on_and_its_letter_stays_open(
    small: Config, group, conn, effects
) -> None:
    g = held(group, "a", "b")
    result = stream(small, "parked", "release", "--group", "testers", "--key", "a")
    assert result.exit_code == 0, result.output
    assert "testers, things a: Happened " in result.stderr
    assert "1 event behind it goes on" in result.stderr
    assert g.go_on(conn) == ["done"]
    assert effects() == [("a", 10)]
    assert [one["key"] for one in stream_json(small, "parked", "list")] == ["b"]
    assert statuses(conn) == [(1, "open"), (2, "open")]
    for command in hints(result):
        assert follow(small, command).exit_code == 0
    stream(small, "dlq", "replay", "1")
    assert g.go_on(conn) == ["done"]
    assert effects() == [("a", 10), ("a", 0)]


def test_the_printed_commands_release_and_discard_a_key(small: Config, group, conn, effects) -> None:
    g = held(group, "it's a key", "b")
    *_, release, discard = hints(stream(small, "parked", "list"))
    assert follow(small, release).exit_code == 0
    *_, discard, _retry = hints(stream(small, "parked", "list"))
    assert follow(small, discard).exit_code == 0
    assert sorted(g.go_on(conn)) == ["done", "done"]
    assert sorted(effects()) == [("b", 11), ("it's a key", 10)]
    assert statuses(conn) == [(1, "open"), (2, "discarded")]


def test_several_keys_are_a_plan_until_they_are_executed(small: Config, group, conn, effects) -> None:
    g = held(group, "a", "b", "c")
    g.trouble[20] = TransientError("down")
    g.run(("waits", 20))
    plan = stream(small, "parked", "release", "--group", "testers")
    assert plan.exit_code == 0
    assert [line.split()[2] for line in plan.stdout.splitlines()[1:]] == ["a", "b", "c"]
    assert "3 keys; nothing was changed yet" in plan.stderr
    assert [row[3] for row in parked_rows(conn)].count(True) == 3
    [command] = hints(plan)
    assert follow(small, command).exit_code == 0
    g.heal()
    g.go_on(conn)
    assert sorted(n for _, n in effects()) == [10, 11, 12, 20]
    assert parked_rows(conn) == []


def test_discard_of_a_dead_head_closes_its_letter(small: Config, group, conn, effects) -> None:
    g = held(group, "a")
    result = stream(small, "parked", "discard", "--key", "a", "--reason", "a test order")
    assert result.exit_code == 0, result.output
    assert "its letter is closed; 1 event behind it goes on" in result.stderr
    assert (g.go_on(conn), effects()) == (["done"], [("a", 10)])
    assert rows(conn, "select status, resolved_reason from stream.dead_letter") == [
        ("discarded", "a test order")
    ]


def test_discard_of_a_head_that_would_be_tried_again_counts_as_skipped(
    small: Config, group, conn, effects
) -> None:
    g = group()
    g.trouble[1] = TransientError("down")
    g.run(("a", 1), ("a", 2))
    result = stream(small, "parked", "discard", "--key", "a", "--reason", "a test order")
    assert result.exit_code == 0, result.output
    assert "it counts as skipped; 1 event behind it goes on" in result.stderr
    g.heal()
    assert (g.go_on(conn), effects()) == (["done"], [("a", 2)])
    assert sorted(rows(conn, "select outcome, reason from stream.ledger"), key=str) == [
        ("done", None), ("skipped", "discarded: a test order")
    ]  # fmt: skip


def test_records_without_a_key_are_chosen_by_their_partition(small: Config, group, conn, effects) -> None:
    g = held(group, None)
    [one] = stream_json(small, "parked", "list")
    assert (one["key"], one["partition"]) == (None, 0)
    assert stream(small, "parked", "release", "--partition", "3").exit_code == 1
    *_, release, _ = hints(stream(small, "parked", "list"))
    assert release == "stream parked release --group testers --topic things --partition 0"
    assert follow(small, release).exit_code == 0
    assert (g.go_on(conn), [n for _, n in effects()]) == (["done"], [10])


def test_a_key_and_a_partition_are_not_chosen_together(small: Config) -> None:
    for words in (("release",), ("discard", "--reason", "no")):
        result = stream(small, "parked", *words, "--key", "3001", "--partition", "2")
        assert result.exit_code == 2
        assert "--key or --partition, one or the other" in result.stderr


def test_a_key_that_nothing_holds_is_not_released(small: Config, group) -> None:
    g = group()
    g.trouble[1] = TransientError("down")
    g.run(("a", 1))
    result = stream(small, "parked", "release", "--key", "a")
    assert result.exit_code == 4
    assert "nothing holds it; its next try is at" in result.stderr
    assert follow(small, hints(result)[0]).exit_code == 0
    assert stream(small, "parked", "release", "--key", "nobody").exit_code == 1


def test_a_waiting_key_is_tried_now(small: Config, group, conn, effects) -> None:
    g = group()
    g.trouble[1] = TransientError("down")
    g.run(("a", 1), ("a", 2))
    [command] = hints(stream(small, "parked", "list"))
    assert command == "stream parked retry --group testers --topic things --key a"
    g.heal()
    retry_records(conn)  # what was on its way is lost, or comes later
    result = follow(small, command)
    assert result.exit_code == 0, result.output
    assert g.worker.wake(*retry_records(conn)) == ["done"]
    assert g.worker.wake(*retry_records(conn)) == ["done"]
    assert effects() == [("a", 1), ("a", 2)]
    assert rows(conn, "select action, result from stream.operator_action") == [("parked retry", "retried")]
    assert stream(small, "parked", "retry", "--key", "a").exit_code == 1


def test_a_key_of_a_group_that_runs_nothing_is_called_and_that_is_said(small: Config, group, conn) -> None:
    g = group()
    g.trouble[1] = TransientError("down")
    g.run(("a", 1))
    halt(conn, "testers")
    result = stream(small, "parked", "retry", "--key", "a")
    assert result.exit_code == 0, result.output
    assert "group testers is held (halted: ten in a row): its events run once it goes on" in result.stderr


def test_a_held_key_is_not_tried_but_its_letter_replayed(small: Config, group, conn, effects) -> None:
    g = held(group, "a")
    g.trouble[20] = TransientError("down")
    g.run(("waits", 20))
    result = stream(small, "parked", "retry", "--key", "a")
    assert result.exit_code == 4
    assert "its first event is dead" in result.stderr
    g.heal()
    assert follow(small, hints(result)[0]).exit_code == 0
    [command] = hints(stream(small, "parked", "retry"))  # the plan leaves out what it would refuse
    assert follow(small, command).exit_code == 0
    while parked_rows(conn):
        g.worker.wake_all(*retry_records(conn))
    assert sorted(n for _, n in effects()) == [0, 10, 20]


def test_nothing_is_done_to_another_head_than_the_one_that_was_seen(small: Config, group, conn) -> None:
    g = held(group, "a")
    with psycopg.connect(small.database_url, autocommit=True) as db:
        [seen] = parked.keys(db)
        assert parked.release(db, seen).followers == 1
        with pytest.raises(Refused, match="its first event is now"):
            parked.discard(db, seen, "too late")
        assert g.go_on(conn) == ["done"]
        with pytest.raises(Refused, match="it is not parked any more"):
            parked.discard(db, seen, "too late")


def test_a_key_somebody_works_on_is_waited_for_and_then_refused(
    small: Config, group, conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream.operators.LOCK_TIMEOUT", "200ms")
    held(group, "a", "b")
    conn.execute("select stream.lock_lanes(array[stream.parked_lane('testers', 'things', 'a', 0)])")
    one = stream(small, "parked", "release", "--key", "a")
    assert one.exit_code == 4
    assert "did not end within 200ms" in one.stderr
    both = stream(small, "parked", "release", "--group", "testers", "--execute")
    conn.rollback()
    assert both.exit_code == 6
    assert [(one["key"], one["state"]) for one in stream_json(small, "parked", "list")] == [
        ("a", "held"), ("b", "waiting")
    ]  # fmt: skip


def test_what_is_to_be_discarded_must_be_named_with_a_reason(small: Config) -> None:
    assert stream(small, "parked", "discard", "--reason", "no").exit_code == 2
    assert stream(small, "parked", "discard", "--key", "a").exit_code == 2
    assert stream(small, "parked", "discard", "--key", "a", "--reason", " ").exit_code == 2
    assert stream(small, "parked", "discard", "--key", "a", "--reason", "because").exit_code == 1


def test_what_was_done_is_written_down(small: Config, group, conn) -> None:
    held(group, "a", "b")
    stream(small, "parked", "release", "--key", "a")
    stream(small, "parked", "discard", "--key", "b", "--reason", "a test order")
    found = rows(
        conn, "select action, target, result, reason, parameters from stream.operator_action order by id"
    )
    assert [row[:4] for row in found] == [
        ("parked release", "testers, things a", "released", None),
        ("parked discard", "testers, things b", "discarded", "a test order"),
    ]
    assert (found[0][4]["letter"], found[1][4]["followers"]) == (1, 1)
