"""SIGKILL of a worker at each step of failing: parking, the retry run, the dead letter. The log has no unique key."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stream.config import Config
from stream.failpoints import NAMES
from tests.support.effects import Effects, consume, effect_project, migrate, write_group
from tests.support.groups import publish
from tests.support.processes import Command
from tests.support.waiting import until

pytestmark = pytest.mark.soak

STEPS = sorted(name for name in NAMES if name.startswith("fail."))
# Every third number fails at its first two tries; the 7th of each key for good.
FAIL = """\
assert event.data["n"] % 3 or ctx.attempt > 2, "not yet"
    assert event.data["n"] // 10 != 7, "never\""""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("batch", [1, 10])
def test_a_worker_killed_while_failing_loses_and_doubles_nothing(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects, batch: int
) -> None:
    environment = {**environment, "STREAM_TIME_SCALE": "0.05"}
    groups = {step: step.replace(".", "-") for step in STEPS}
    project = effect_project(tmp_path / "shop", *groups.values())
    for group in groups.values():
        write_group(project, group, after=FAIL, batch=batch, concurrency=2, attempts=3)
    migrate(project, environment)
    publish(config, project, [(f"k{n % 10}", n) for n in range(100)])
    relay = Command("relay", env=environment, cwd=project.root)
    killed = [
        consume(project, environment, group, failpoints=f"{step}=kill@3") for step, group in groups.items()
    ]
    for command in killed:
        assert command.wait() == -signal.SIGKILL, (command.arguments, command.stderr)

    again = consume(project, environment, *groups.values())
    alive = {n for n in range(100) if n // 10 != 7}
    expected = {f"k{k}": [n for n in range(k, 100, 10) if n in alive] for k in range(10)}
    for group in groups.values():
        until(lambda group=group: effects.count(group) >= len(alive), 90, lambda: again.stderr[-3000:])
    until(lambda: effects.fetch("select count(*) from stream.parked") == [(0,)], 30)
    for group in groups.values():
        assert effects.by_key(group) == expected, group
    letters = effects.fetch("select consumer_group, count(*) from stream.dead_letter group by 1")
    assert dict(letters) == dict.fromkeys(groups.values(), 10)
    assert again.stop() == 0
    assert relay.stop() == 0
