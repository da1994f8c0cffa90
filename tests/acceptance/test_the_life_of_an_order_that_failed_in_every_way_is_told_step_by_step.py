"""An order that is tried again, parks what comes behind it, dies, is replayed and reapplied: `order show` has every
step, in order, at the times that the log and the database have."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream import Outbox
from stream.config import Config
from stream.project import Project
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.processes import Command, run
from tests.support.topics import read_all
from tests.support.waiting import until

pytestmark = pytest.mark.long

CAUSE = "create table trouble (key text primary key)"
FAIL = """if event.data["n"] == 0 and ctx.db.execute("select from trouble where key = %s", [event.key]).rowcount:
        raise LookupError(f"no price for {event.key}")"""
NEAR = timedelta(seconds=5)  # a line is logged after its transaction, by a machine that may be slow


def logged(command: Command) -> list[dict[str, Any]]:
    """What the worker's log says of tries that failed, in order."""
    lines = [json.loads(line) for line in command.stderr.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] in ("event.failed", "event.dead")]


def show(project: Project, environment: dict[str, str], *words: str) -> Command:
    command = run("order", "show", "bad", *words, env=environment, cwd=project.root)
    assert command.wait() == 0, command.stderr
    return command


def events_of(project: Project, environment: dict[str, str]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(show(project, environment, "--format", "json").stdout)["events"]
    return events


def kinds(steps: list[dict[str, Any]]) -> list[str]:
    return [step["what"] for step in steps]


def time_of(step: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(step["at"])


def test_every_step_of_a_hard_life_is_told(
    tmp_path: Path,
    config: Config,
    environment: dict[str, str],
    effects: Effects,
    conn: psycopg.Connection[Any],
) -> None:
    environment = {**environment, "STREAM_TIME_SCALE": "0.2"}
    project = effect_project(tmp_path / "shop", after=FAIL, attempts=3, on_dead="hold")
    migrate(project, environment)
    conn.execute(CAUSE)
    conn.execute("insert into trouble values ('bad')")
    outbox = Outbox(project)
    ids = [str(outbox.append(conn, "Happened", key="bad", data={"n": n})) for n in range(3)]
    conn.commit()
    relay = Command("relay", env=environment, cwd=project.root)
    worker = consume(project, environment)
    waiting = "select (select count(*) from stream.parked), (select count(*) from stream.dead_letter),"
    waiting += " (select count(*) from stream.outbox) + (select count(*) from stream.scheduled)"
    until(lambda: effects.fetch(waiting) == [(3, 1, 0)], 60, lambda: worker.stderr)

    first, second, third = events_of(project, environment)
    assert [event["event_id"] for event in (first, second, third)] == ids
    [dead], [waits], [too] = first["groups"], second["groups"], third["groups"]
    assert kinds(dead["steps"]) == ["failed", "failed", "called", "dead", "copied"]
    assert (dead["outcome"], dead["letter"], dead["holds"]) == ("dead", 1, True)
    assert kinds(waits["steps"]) == kinds(too["steps"]) == ["parked"]
    assert waits["reason"] == "behind letter 1, which is held"

    conn.execute("delete from trouble")
    conn.commit()
    replay = run("dlq", "replay", "1", env=environment, cwd=project.root)
    assert replay.wait() == 0, replay.stderr
    until(lambda: effects.by_key() == {"bad": [0, 1, 2]}, 60, lambda: worker.stderr)
    until(lambda: effects.fetch(waiting) == [(0, 1, 0)], 30)

    events = events_of(project, environment)
    [hard], *easier = (event["groups"] for event in events)
    assert kinds(hard["steps"]) == [
        *("failed", "failed", "called", "dead", "copied", "replayed", "called", "done")
    ]
    for [follower] in easier:
        assert [what for what in kinds(follower["steps"]) if what != "called"] == ["parked", "done"]
    one, two, called, death, copied, replayed, again, _ = hard["steps"]

    # The log.
    lines = logged(worker)
    assert (
        [line["attempt"] for line in lines] == [one["attempt"], two["attempt"], death["attempt"]] == [1, 2, 3]
    )
    for step, line in zip((one, two, death), lines, strict=True):
        assert line["event_id"] == ids[0]
        assert line["error"] == step["error"] == "LookupError: no price for bad"
        assert abs(datetime.fromisoformat(line["timestamp"]) - time_of(step)) < NEAR

    # The database.
    [(last, resolved, by)] = effects.fetch(
        "select last_failed_at, resolved_at, resolved_by from stream.dead_letter"
    )
    assert (time_of(death), time_of(replayed), replayed["by"]) == (last, resolved, by)
    assert (death["letter"], replayed["letter"]) == (1, 1)
    ledger = dict(effects.fetch("select event_id::text, at from stream.ledger"))
    assert [time_of(event["groups"][0]["steps"][-1]) for event in events] == [ledger[id] for id in ids]

    # The topics.
    calls = {
        f"testers.retry[{message.partition()}]@{message.offset()}": message.timestamp()[1]
        for message in read_all(config, "testers.retry")
    }
    [copy] = read_all(config, "testers.dlq")
    assert copied["position"] == f"testers.dlq[{copy.partition()}]@{copy.offset()}"
    for step in (called, again):
        assert int(time_of(step).timestamp() * 1000) == calls[step["position"]]

    # Times go on, and so do those between: each from the step before.
    for event in events:
        begun = datetime.fromisoformat(event["published_at"])
        steps = event["groups"][0]["steps"]
        assert [time_of(step) for step in steps] == sorted(time_of(step) for step in steps)
        for step in steps:
            assert step["after_seconds"] == pytest.approx((time_of(step) - begun).total_seconds(), abs=1e-6)
            begun = time_of(step)

    told, *_ = show(project, environment).stdout.split("\n\n")
    words = [line.split("  ", 3)[-1].strip() for line in told.splitlines()[1:]]
    for word, expected in zip(
        words,
        [
            "written",
            "published",
            "testers  failed: LookupError: no price for bad  (attempt 1",
            "testers  failed: LookupError: no price for bad  (attempt 2",
            f"testers  called  {called['position']}",
            "testers  dead, letter 1: LookupError: no price for bad  (attempt 3",
            f"testers  copied  {copied['position']}",
            f"testers  letter 1 replayed by {by}",
            f"testers  called  {again['position']}",
            "testers  done  (attempt 1",
        ],
        strict=True,
    ):
        assert expected in word

    # History run again is told beside the first run, which stays as it was.
    words_of = ("rewind", "--group", "testers", "--to-earliest", "--reapply", "--execute")
    rewind = run(*words_of, env=environment, cwd=project.root)
    assert rewind.wait() == 0, rewind.stderr
    until(lambda: effects.by_key() == {"bad": [0, 1, 2, 0, 1, 2]}, 60, lambda: worker.stderr)
    reapplied = dict(effects.fetch("select event_id::text, at from stream.ledger where epoch = 1"))
    for before, event in zip(events, events_of(project, environment), strict=True):
        first_run, second_run = event["groups"]
        assert (first_run["epoch"], first_run["steps"]) == (0, before["groups"][0]["steps"])
        assert (second_run["epoch"], second_run["outcome"], kinds(second_run["steps"])) == (
            1,
            "done",
            ["done"],
        )
        assert time_of(second_run["steps"][0]) == reapplied[event["event_id"]]
    assert "epoch 1" in show(project, environment).stdout
    assert (worker.stop(), relay.stop()) == (0, 0)
