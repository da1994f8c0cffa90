"""`stream order show`: each event of a key, where it is, and what the groups made of it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream import Outbox, PermanentError, app
from stream.config import Config
from stream.kafka.search import records_of_key
from stream.project import Project
from stream.relay import Relay
from tests.support.cli import hints, stream, stream_json
from tests.support.letters import Troubled
from tests.support.processes import STREAM
from tests.support.small import make_project

CONTRACT_OF_AN_EVENT = {
    *("event_id", "type", "topic", "partition", "offset", "time", "published_at", "groups")
}
CONTRACT_OF_A_GROUP = {"group", "outcome", "at", "attempts", "epoch", "worker", "reason"}
Conn = psycopg.Connection[Any]
GROUP = """
from stream import ConsumerGroup

group = ConsumerGroup("counting", topics=["things"], start="beginning")

@group.on("Happened")
def count(event, ctx): ...
"""


@pytest.fixture
def small(config: Config, tmp_path: Path) -> Config:
    project = make_project(tmp_path / "small")
    (project.root / "consumers" / "counting.py").write_text(GROUP)
    small = replace(config, project=project.root)
    app.migrate(small, project)
    return small


@pytest.fixture
def db(small: Config) -> Iterator[Conn]:
    with psycopg.connect(small.database_url, autocommit=True) as connection:
        yield connection


def append(db: Conn, config: Config, key: str, type: str = "Happened", **more: Any) -> uuid.UUID:
    return Outbox(Project(config.project)).append(db, type, key=key, data={"n": 1}, **more)


def relay_once(config: Config) -> None:
    Relay(config, Project(config.project)).run_until_empty()


def settle(db: Conn, id: uuid.UUID, outcome: str = "done", reason: str | None = None) -> None:
    """What the group's worker writes."""
    db.execute(
        "insert into stream.group_state (consumer_group, start_policy) values ('counting', 'x') on conflict do nothing"
    )
    db.execute(
        "insert into stream.ledger (consumer_group, event_id, outcome, attempts, worker, reason)"
        " values ('counting', %s, %s, 2, 'host-1', %s)",
        [id, outcome, reason],
    )


def test_an_event_that_waits_for_another_try_says_why(small: Config, db: Conn) -> None:
    first = append(db, small, "1")
    second = append(db, small, "1")
    relay_once(small)
    db.execute("insert into stream.group_state (consumer_group, start_policy) values ('counting', 'x')")
    db.execute(
        """insert into stream.parked (consumer_group, topic, partition, "offset", event_id, key, header_names,
                                      header_values, timestamp, lane, attempts, due_at, error_class, error_message,
                                      worker)
           values ('counting', 'things', 0, 0, %s, '1', '{}', '{}', now(), 7, 3, now() + interval '60 s', 'ValueError',
                   'no price', 'host-1'),
                  ('counting', 'things', 0, 1, %s, '1', '{}', '{}', now(), 7, 0, null, null, null, null)""",
        [first, second],
    )
    shown = stream(small, "order", "show", "1").stdout
    assert re.search(
        r"counting  not yet: failed, again in (60|59) s: ValueError: no price  \(attempt 3\)", shown
    )
    assert "counting  not yet: behind an earlier event of its key that failed" in shown


@pytest.mark.parametrize("on_dead", ["hold", "release"])
def test_a_dead_event_names_its_letter_and_what_waits_behind_it_says_so(
    small: Config, db: Conn, effects, on_dead: str
) -> None:
    for _ in range(3):
        append(db, small, "1")
    relay_once(small)
    events = stream_json(small, "order", "show", "1")["events"]
    g = Troubled(Project(small.project), small.database_url, on_dead=on_dead)
    try:
        g.trouble[1] = PermanentError("no lines")
        first, *behind = records_of_key(small, b"1", ["things"], seconds=60).records
        g.worker.run(first)
        g.heal()
        for each in behind:
            g.worker.run(each)
    finally:
        g.worker.execution.close()
    db.execute("insert into stream.group_state (consumer_group, start_policy) values ('testers', 'x')")
    result = stream(small, "order", "show", "1")
    dead, *others = result.stdout.split("\n\n")
    held = ", which holds its key" if on_dead == "hold" else ""
    assert f"testers   dead, letter 1{held}: stream.errors.PermanentError: no lines  (attempt 1" in dead
    for other in others:
        said = "not yet: behind letter 1, which is held" if on_dead == "hold" else "done  (attempt 1"
        assert f"testers   {said}" in other
    assert hints(result) == ["stream dlq show 1"]
    assert stream(small, *shlex.split(hints(result)[0])[1:]).exit_code == 0
    shown = stream_json(small, "order", "show", "1")["events"]
    assert [event["event_id"] for event in shown] == [event["event_id"] for event in events]
    [outcome] = [each for each in shown[0]["groups"] if each["group"] == "testers"]
    assert set(outcome) >= CONTRACT_OF_A_GROUP


def test_a_group_that_runs_nothing_now_is_why_an_event_is_not_done(small: Config, db: Conn) -> None:
    first = append(db, small, "1")
    settle(db, first)
    second = append(db, small, "1")
    third = append(db, small, "1")
    relay_once(small)
    db.execute(
        """insert into stream.parked (consumer_group, topic, partition, "offset", event_id, key, header_names,
                                      header_values, timestamp, lane, attempts, due_at, error_class, error_message,
                                      worker)
           values ('counting', 'things', 0, 1, %s, '1', '{}', '{}', now(), 7, 3, now(), 'ValueError', 'no', 'w')""",
        [second],
    )
    assert hints(stream(small, "order", "show", "1")) == []
    for change, hold in (
        ("breaker_open_since = now(), breaker_reason = 'five in a row'", "breaker open: five in a row"),
        ("paused_until = 'infinity'", "paused: by an operator"),
        ("halted_at = now(), halted_reason = 'ten deaths'", "halted: ten deaths"),
    ):
        db.execute(f"update stream.group_state set {change}".encode())
        result = stream(small, "order", "show", "1")
        done, failed, waits = result.stdout.split("\n\n")
        assert "is held" not in done
        assert f"counting  not yet: its group is held ({hold}); failed, again now: ValueError: no" in failed
        assert waits.endswith(f"counting  not yet: its group is held ({hold})\n")
        assert hints(result) == ["stream groups describe counting"]
    *_, last = stream_json(small, "order", "show", "1")["events"]
    assert (last["event_id"], last["groups"][0]["reason"]) == (
        str(third),
        "its group is held (halted: ten deaths)",
    )


def test_the_json_is_the_contract_s(small: Config, db: Conn) -> None:
    happened = datetime(2010, 12, 1, 8, 26, tzinfo=UTC)
    first = append(db, small, "1", time=happened)
    relay_once(small)
    second = append(db, small, "1", "Echoed")
    append(db, small, "2")
    relay_once(small)
    settle(db, first, "skipped", "nothing to do")
    shown = stream_json(small, "order", "show", "1")
    assert shown["key"] == "1"
    [one, two] = shown["events"]
    assert set(one) >= CONTRACT_OF_AN_EVENT
    assert (one["event_id"], one["type"], one["topic"], one["offset"]) == (
        str(first),
        "Happened",
        "things",
        0,
    )
    assert one["time"] == "2010-12-01T08:26:00Z"
    now = datetime.now(UTC)
    assert (
        now - timedelta(seconds=30) < datetime.fromisoformat(one["published_at"]) < now + timedelta(seconds=1)
    )
    [group] = one["groups"]
    assert now - timedelta(seconds=30) < datetime.fromisoformat(group.pop("at")) < now + timedelta(seconds=1)
    assert {name: group[name] for name in CONTRACT_OF_A_GROUP - {"at"}} == {
        "group": "counting",
        "outcome": "skipped",
        "attempts": 2,
        "epoch": 0,
        "worker": "host-1",
        "reason": "nothing to do",
    }
    assert [step["what"] for step in group["steps"]] == ["skipped"]
    assert (two["event_id"], two["topic"], two["groups"]) == (str(second), "echoes", [])


def test_the_text_is_a_timeline_with_the_time_between(small: Config, db: Conn) -> None:
    settle(db, append(db, small, "1"))
    append(db, small, "1")
    relay_once(small)
    result = stream(small, "order", "show", "1")
    assert result.exit_code == 0, result.output
    first, second = result.stdout.split("\n\n")
    assert first.startswith("Happened  things[")
    assert [line.split()[-1] for line in first.splitlines()[1:3]] == ["written", "published"]
    assert first.splitlines()[2].split()[-2] in ("ms", "s")
    assert "counting  done  (attempt 2, worker host-1)" in first
    assert "counting  not yet" in second


def test_what_is_not_published_yet_is_shown_with_the_command_to_type(small: Config, db: Conn) -> None:
    append(db, small, "1")
    result = stream(small, "order", "show", "1")
    assert "waits for a relay" in result.stdout
    assert hints(result) == ["stream outbox status"]
    [event] = stream_json(small, "order", "show", "1")["events"]
    assert (event["topic"], event["partition"], event["offset"], event["published_at"]) == (
        "things",
        None,
        None,
        None,
    )


def test_a_scheduled_event_is_shown_with_its_time(small: Config, db: Conn) -> None:
    append(db, small, "1", delay=3600)
    assert "due (in 60 min)" in stream(small, "order", "show", "1").stdout


def test_a_rejected_event_is_shown_with_its_reason_and_can_be_retried(small: Config, db: Conn) -> None:
    event = json.dumps([{"type": "Happened", "key": "a b", "data": {"n": 1.5}}])
    db.execute("select stream.append_many(%s::jsonb)", [event])
    relay_once(small)
    result = stream(small, "order", "show", "a b")
    assert "rejected, invalid: Happened.n: expected" in result.stdout
    [command] = hints(result)
    assert stream(small, *shlex.split(command)[1:]).exit_code == 0
    assert "waits for a relay" in stream(small, "order", "show", "a b").stdout


def test_a_group_that_never_ran_here_says_so(small: Config, db: Conn) -> None:
    append(db, small, "1")
    relay_once(small)
    [event] = stream_json(small, "order", "show", "1")["events"]
    [group] = event["groups"]
    assert (group["group"], group["outcome"], group["reason"]) == (
        "counting",
        None,
        "this group never ran on this database",
    )


def test_a_module_that_does_not_import_hides_no_outcome(small: Config, db: Conn) -> None:
    settle(db, append(db, small, "1"))
    relay_once(small)
    (small.project / "consumers" / "broken.py").write_text("import no_such_library\n")
    result = stream(small, "order", "show", "1")
    assert result.exit_code == 0, result.output
    assert "counting  done" in result.stdout
    assert "broken.py does not import" in result.stderr


def test_an_unknown_key_is_an_error_that_names_where_it_looked(small: Config) -> None:
    result = stream(small, "order", "show", "nobody", "--format", "json")
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert (shown["key"], shown["events"]) == ("nobody", [])
    assert "no event of key 'nobody' in the outbox or in things, echoes" in result.stderr


def test_a_key_that_is_no_text_can_be_asked_for(small: Config, db: Conn) -> None:
    db.execute(
        "select stream.append_encoded(array['things'], array['\\xff'::bytea], array[gen_random_uuid()],"
        " array['Happened'], array[now()], array['\\x00'::bytea], array[null::jsonb], array[null], array[null])"
    )
    assert stream_json(small, "order", "show", "\\xff")["key"] == "\\xff"


def test_what_could_not_be_read_in_time_is_named(small: Config, db: Conn) -> None:
    append(db, small, "1")
    relay_once(small)
    result = stream(small, "order", "show", "1", "--timeout", "0")
    assert result.exit_code == 6
    assert "was read from 0 to 0, its end is 1" in result.stderr
    assert hints(result) == ["stream order show 1 --timeout 60"]


def test_a_second_run_of_history_is_told_with_its_epoch(small: Config, db: Conn) -> None:
    first = append(db, small, "1")
    relay_once(small)
    settle(db, first)
    db.execute(
        "insert into stream.ledger (consumer_group, event_id, epoch, outcome, attempts, worker)"
        " values ('counting', %s, 1, 'done', 1, 'host-1')",
        [first],
    )
    text = stream(small, "order", "show", "1").stdout
    assert "counting  done  (attempt 2, worker host-1)" in text
    assert "counting  done  (attempt 1, worker host-1, epoch 1)" in text
    [event] = stream_json(small, "order", "show", "1")["events"]
    assert [(group["epoch"], len(group["steps"])) for group in event["groups"]] == [(0, 1), (1, 1)]


def test_on_a_terminal_it_says_how_far_it_has_read(
    small: Config, db: Conn, environment: dict[str, str]
) -> None:
    append(db, small, "1")
    relay_once(small)
    ours, theirs = os.openpty()
    command = subprocess.Popen(
        [STREAM, "order", "show", "1"],
        env=environment,
        cwd=small.project,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    try:
        os.close(theirs)
        stdout, _ = command.communicate(timeout=60)
        said = os.read(ours, 10_000).decode()
    finally:
        command.kill()
        os.close(ours)
    assert command.returncode == 0
    assert stdout.startswith(b"Happened  things[")
    assert "\rread 1 of 1 records" in said


def test_a_key_in_place_of_the_command_is_understood(small: Config) -> None:
    result = stream(small, "order", "it's mine")
    assert result.exit_code == 2
    assert hints(result) == ["stream order show 'it'\"'\"'s mine'"]
