"""The topics of retries and of dead letters are deleted, under a running group and while none runs: nothing is lost, it
is said, and what failed goes on once they are there again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.processes import Command, run
from tests.support.topics import delete_topic, read_all
from tests.support.waiting import until

pytestmark = pytest.mark.long

FAIL = """\
if event.key == "dead" and event.data["n"] % 2:
        raise PermanentError("never")
    if event.key == "bad" and os.path.exists("trouble"):
        raise TransientError("not now")"""
KEYS = ["bad", "dead", *(f"k{n}" for n in range(10))]


@pytest.mark.timeout(120)
def test_failing_goes_on_after_its_topics_were_deleted(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    environment = {**environment, "STREAM_TIME_SCALE": "0.05"}
    project = effect_project(tmp_path / "shop", after=FAIL)
    trouble = project.root / "trouble"
    trouble.touch()
    migrate(project, environment)
    relay = Command("relay", env=environment, cwd=project.root)
    worker = consume(project, environment)
    publish(config, project, [(key, 0) for key in KEYS if key != "bad"])
    until(lambda: effects.count() == 11)

    for topic in ("testers.retry", "testers.dlq"):
        delete_topic(config, topic)
    publish(config, project, [(key, n) for n in (1, 2) for key in KEYS])
    until(lambda: effects.count() == 11 + 2 * 10 + 1, 30, lambda: worker.stderr[-3000:])
    until(
        lambda: (
            sick_topics(project.root, environment)
            == {topic: "the topic does not exist" for topic in ("testers.retry", "testers.dlq")}
        ),
        30,
    )
    for topic in ("testers.retry", "testers.dlq"):
        assert f'"topic": "{topic}"' in said(relay, "relay.topic_sick")
    assert worker.running

    trouble.unlink()
    migrate(project, environment)  # makes what is missing
    until(
        lambda: effects.fetch("select count(*) from stream.parked") == [(0,)],
        60,
        lambda: worker.stderr[-3000:],
    )
    until(lambda: [m.key() for m in read_all(config, "testers.dlq")] == [b"dead"], 30)
    until(lambda: sick_topics(project.root, environment) == {})
    effects.check({key: [0, 1, 2] for key in KEYS} | {"dead": [0, 2], "bad": [1, 2]})
    assert effects.fetch("select key, kind from stream.dead_letter") == [(b"dead", "permanent")]
    assert worker.stop() == 0
    assert relay.stop() == 0


@pytest.mark.timeout(120)
def test_a_retry_whose_record_was_deleted_is_called_again(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    environment = {**environment, "STREAM_TIME_SCALE": "0.05"}
    project = effect_project(tmp_path / "shop", after=FAIL)
    trouble = project.root / "trouble"
    trouble.touch()
    migrate(project, environment)
    relay = Command("relay", env=environment, cwd=project.root)
    worker = consume(project, environment)
    publish(config, project, [("bad", n) for n in range(3)])
    until(lambda: effects.fetch("select count(*) from stream.parked") == [(3,)], 30, lambda: worker.stderr)
    assert worker.stop() == 0
    until(lambda: effects.fetch("select from stream.scheduled union all select from stream.outbox") == [])
    delete_topic(config, "testers.retry")

    missing = consume(project, environment)
    assert missing.wait() == 5
    assert "topic testers.retry does not exist" in missing.error
    assert "-> stream migrate" in missing.stderr
    trouble.unlink()
    migrate(project, environment)
    worker = consume(project, environment)
    worker.says("retries.overdue")
    until(lambda: effects.by_key() == {"bad": [0, 1, 2]}, 30, lambda: worker.stderr[-3000:])
    assert worker.stop() == 0
    assert relay.stop() == 0


def sick_topics(root: Path, environment: dict[str, str]) -> dict[str, str]:
    """What `stream outbox status` says."""
    command = run("outbox", "status", "--format", "json", env=environment, cwd=root)
    assert command.wait() == 0, command.stderr
    return {sick["topic"]: sick["reason"] for sick in json.loads(command.stdout)["sick_topics"]}


def said(command: Command, event: str) -> str:
    """The lines of the log about it."""
    return "\n".join(line for line in command.stderr.splitlines() if event in line)
