"""on_dead="hold": the key of a dead event stays where it is, through restarts, and visible, until an operator acts; the
replay of its head frees it in order."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from stream.project import Project
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.processes import Command, run
from tests.support.waiting import until

pytestmark = pytest.mark.long

CAUSE = "create table trouble (key text primary key)"
FAIL = """if event.data["n"] == 0 and ctx.db.execute("select from trouble where key = %s", [event.key]).rowcount:
        raise LookupError(f"no price for {event.key}")"""


def listed(project: Project, environment: dict[str, str], *words: str) -> Any:
    command = run(*words, "--format", "json", env=environment, cwd=project.root)
    assert command.wait() == 0, command.stderr
    return json.loads(command.stdout)


def test_a_held_key_stays_until_its_head_is_replayed(
    tmp_path: Path,
    config: Config,
    environment: dict[str, str],
    effects: Effects,
    conn: psycopg.Connection[Any],
) -> None:
    environment = {**environment, "STREAM_TIME_SCALE": "0.02"}
    project = effect_project(tmp_path / "shop", after=FAIL, attempts=2, on_dead="hold")
    migrate(project, environment)
    conn.execute(CAUSE)
    conn.execute("insert into trouble values ('bad'), ('worse')")
    conn.commit()
    keys = ["bad", "good", "worse"]
    publish(config, project, [(key, n) for n in range(3) for key in keys])
    relay = Command("relay", env=environment, cwd=project.root)
    worker = consume(project, environment)
    until(
        lambda: effects.fetch("select count(*) from stream.parked where held") == [(2,)],
        30,
        lambda: worker.stderr,
    )
    until(lambda: effects.by_key() == {"good": [0, 1, 2]})
    assert worker.stop() == 0

    at_end = consume(project, environment, at_end=True)
    assert at_end.wait() == 6
    assert "parked or held: bad, worse" in at_end.error
    hint = at_end.stderr.splitlines()[-1]
    shown = run(*shlex.split(hint.removeprefix("-> stream")), env=environment, cwd=project.root)
    assert shown.wait() == 0
    assert shown.stdout.count(" held ") == 2

    publish(config, project, [("bad", 3), ("good", 3)])
    worker = consume(project, environment)
    until(lambda: effects.by_key() == {"good": [0, 1, 2, 3]}, 30, lambda: worker.stderr)
    until(lambda: effects.fetch("select count(*) from stream.parked where not held") == [(5,)])
    bad, worse = sorted(listed(project, environment, "parked", "list"), key=lambda each: str(each["key"]))
    assert (bad["key"], bad["state"], bad["followers"], bad["attempts"]) == ("bad", "held", 3, 2)
    assert (worse["key"], worse["followers"]) == ("worse", 2)
    assert "no price for bad" in bad["error_message"]

    conn.execute("delete from trouble")
    conn.commit()
    letters = {each["key"]: each["id"] for each in listed(project, environment, "dlq", "list", "--all")}
    assert (bad["letter"], worse["letter"]) == (letters["bad"], letters["worse"])
    replay = run("dlq", "replay", str(letters["bad"]), env=environment, cwd=project.root)
    assert replay.wait() == 0, replay.stderr
    until(lambda: effects.by_key().get("bad") == [0, 1, 2, 3], 30, lambda: worker.stderr)
    assert [each["key"] for each in listed(project, environment, "parked", "list")] == ["worse"]

    reason = "--reason=a test order"
    discard = run("dlq", "discard", str(letters["worse"]), reason, env=environment, cwd=project.root)
    assert discard.wait() == 0, discard.stderr
    until(lambda: effects.by_key().get("worse") == [1, 2], 30, lambda: worker.stderr)
    assert listed(project, environment, "parked", "list") == []
    assert effects.by_key() == {"good": [0, 1, 2, 3], "bad": [0, 1, 2, 3], "worse": [1, 2]}
    assert (worker.stop(), relay.stop()) == (0, 0)
