"""The topics of retries and of dead letters take nothing for want of replicas: nothing is lost, it is said, and what
failed goes on by itself once they take records again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stream.config import Config
from tests.support.brokers import SecondBroker
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.processes import Command
from tests.support.topics import read_all
from tests.support.waiting import until

pytestmark = pytest.mark.soak

TOPICS = ("testers.dlq", "testers.retry")
FAIL = """\
if event.key == "dead" and event.data["n"] == 1:
        raise PermanentError("never")
    if event.key == "bad" and ctx.attempt < 3:
        raise TransientError("not now")"""
KEYS = ["bad", "dead", *(f"k{n}" for n in range(10))]


@pytest.fixture
def second_broker(config: Config, stack_data: Path, tmp_path: Path) -> Iterator[SecondBroker]:
    broker = SecondBroker(stack_data / ".stream", tmp_path / "second", config)
    yield broker
    broker.stop()


@pytest.mark.timeout(180)
def test_failing_goes_on_after_its_topics_could_not_be_written(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects, second_broker: SecondBroker
) -> None:
    environment = {**environment, "STREAM_TIME_SCALE": "0.05"}
    second_broker.create_topics({topic: [[1, 2]] for topic in TOPICS}, min_insync=2)
    second_broker.create_topics({"things": [[1]] * 4}, min_insync=1)
    project = effect_project(tmp_path / "shop", after=FAIL)
    migrate(project, environment)
    relay = Command("relay", env=environment, cwd=project.root)
    worker = consume(project, environment)
    publish(config, project, [(key, 0) for key in KEYS])
    until(lambda: effects.count() == len(KEYS), 30, lambda: worker.stderr[-3000:])

    second_broker.hang()
    until(lambda: all(second_broker.in_sync(topic) == 1 for topic in TOPICS), 20)
    publish(config, project, [(key, n) for n in (1, 2) for key in KEYS])
    until(lambda: effects.count() == len(KEYS) + 2 * 10 + 1, 30, lambda: worker.stderr[-3000:])
    sick = "select topic, reason from stream.sick_topic order by topic"
    until(
        lambda: [topic for topic, _ in effects.fetch(sick)] == list(TOPICS), 30, lambda: relay.stderr[-3000:]
    )
    until(lambda: all("too few in-sync replicas" in reason for _, reason in effects.fetch(sick)), 10)
    relay.says("relay.topic_sick")
    assert effects.fetch("select distinct key from stream.parked") == [(b"bad",)]

    second_broker.go_on()
    until(
        lambda: effects.fetch("select count(*) from stream.parked") == [(0,)],
        40,
        lambda: relay.stderr[-3000:],
    )
    until(lambda: [m.key() for m in read_all(config, "testers.dlq")] == [b"dead"], 30)
    until(lambda: effects.fetch(sick) == [], 10)
    effects.check({key: [0, 1, 2] for key in KEYS} | {"dead": [0, 2]})
    assert worker.stop() == 0
    assert relay.stop() == 0
