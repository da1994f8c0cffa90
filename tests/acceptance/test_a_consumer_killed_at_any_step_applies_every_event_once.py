"""SIGKILL of a consumer at each of its steps, under load. The effect log has no unique key: a double would show."""

import signal
from pathlib import Path

import pytest

from stream.config import Config
from stream.failpoints import NAMES
from tests.support.effects import Effects, Load, consume, effect_project, migrate, write_group
from tests.support.waiting import until

# Each step, the how manieth time it is reached (in the middle of the load), and the events in a transaction. A
# group's first offset commits are those of its start; a revoke comes when a second member joins.
STEPS = [
    ("consume.claimed", 30, 1),
    ("consume.claimed", 5, 10),
    ("consume.handled", 30, 1),
    ("consume.handled", 5, 10),
    ("consume.before_commit", 30, 1),
    ("consume.before_commit", 5, 10),
    ("consume.after_commit", 30, 1),
    ("consume.after_commit", 5, 10),
    ("consume.before_offset_commit", 3, 1),
    ("consume.after_offset_commit", 6, 1),
    ("consume.revoke", 1, 1),
]


@pytest.mark.timeout(150)
def test_a_consumer_killed_at_any_step_applies_every_event_once(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    assert {step for step, _, _ in STEPS} == {name for name in NAMES if name.startswith("consume.")}
    project = effect_project(tmp_path / "shop")
    groups = {(step, nth, batch): f"{step}-{batch}" for step, nth, batch in STEPS}
    for (_, _, batch), group in groups.items():
        write_group(project, group, batch=batch, concurrency=3)
    migrate(project, environment)

    with Load(config, project) as load:
        killed = [
            consume(project, environment, group, failpoints=f"{step}=kill@{nth}")
            for (step, nth, _), group in groups.items()
        ]
        until(lambda: effects.count("consume.revoke-1") > 30)
        second = consume(project, environment, "consume.revoke-1")
        for command in killed:
            assert command.wait() == -signal.SIGKILL, (command.arguments, command.stderr)
        second.kill()
        load.wait(50)
    assert load.doubles

    again = consume(project, environment, *groups.values(), at_end=True)
    assert again.wait() == 0, again.stderr
    for group in groups.values():
        effects.check(load.published, group)
