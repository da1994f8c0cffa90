"""A bad deploy: the group halts after ten dead letters, which are one line of the list. With the code mended it goes
on, and the replay brings the ten back."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate, write_group
from tests.support.groups import publish
from tests.support.processes import Command, run
from tests.support.waiting import until

pytestmark = pytest.mark.long

EVENTS = 40


def test_the_ten_letters_of_a_bad_deploy_are_replayed(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    environment = {**environment, "STREAM_TIME_SCALE": "0.02"}
    project = effect_project(tmp_path / "shop", before="raise PermanentError('deployed')")
    migrate(project, environment)
    publish(config, project, [(f"k{n}", n) for n in range(EVENTS)])
    relay = Command("relay", env=environment, cwd=project.root)
    worker = consume(project, environment)
    worker.says("group.held")
    listed = run("dlq", "list", "--format", "json", env=environment, cwd=project.root)
    [alike] = json.loads(listed.stdout)
    assert alike["count"] == 10
    assert (alike["group"], alike["kind"], alike["sample"]) == ("testers", "permanent", "deployed")
    plan = run("dlq", "replay", "--group", "testers", env=environment, cwd=project.root)
    assert "group testers is held (halted: " in plan.stderr
    command = plan.stderr.splitlines()[-1].removeprefix("-> stream ")
    assert worker.stop() == 0

    write_group(project)
    worker = consume(project, environment)
    until(lambda: effects.count() == EVENTS - 10, 60, lambda: worker.stderr)
    replay = run(*shlex.split(command), env=environment, cwd=project.root)
    assert replay.wait() == 0, replay.stderr
    assert "10 replayed, of 10" in replay.stderr
    until(lambda: effects.count() == EVENTS, 60, lambda: worker.stderr)
    effects.check({f"k{n}": [n] for n in range(EVENTS)})
    assert effects.fetch("select status, count(*) from stream.dead_letter group by 1") == [("replayed", 10)]
    assert (worker.stop(), relay.stop()) == (0, 0)
