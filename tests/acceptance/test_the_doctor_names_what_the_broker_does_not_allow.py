"""On a broker with access control lists: what the client may not do is named, and nothing else is wrong with it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from stream import app, doctor
from stream.config import Config
from stream.findings import Finding
from tests.support.guarded import GuardedBroker
from tests.support.small import make_project
from tests.support.waiting import until

pytestmark = pytest.mark.long

RESTING = """
from stream import ConsumerGroup
group = ConsumerGroup("resting", topics=["things"], start="end")
@group.on("Happened")
def rest(event, ctx): pass
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedBroker]:
    broker = GuardedBroker(tmp_path / ".stream")
    yield broker
    broker.stop()


def test_what_the_broker_does_not_allow_is_named(
    config: Config, guarded: GuardedBroker, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "small")
    (project.root / "consumers" / "resting.py").write_text(RESTING)
    config = replace(config, project=project.root)
    app.migrate(guarded.for_everything(config), project)
    user = guarded.for_the_user(config)

    def denied() -> list[str]:
        found = doctor.examine(user, project)
        return [one.message for one in found if (one.check, one.status) == ("permissions", "failure")]

    def others() -> list[Finding]:
        found = doctor.examine(user, project)
        return [one for one in found if one.status in ("failure", "halted") and one.check != "permissions"]

    topics = ("things", "echoes", "resting.retry", "resting.dlq")
    assert denied() == [
        *(f"topic {topic}: this client may not DESCRIBE, READ, WRITE" for topic in topics),
        "group resting: this client may not DESCRIBE, READ",
    ]
    assert others() == []

    for topic in topics:
        guarded.allow(ResourceType.TOPIC, config.prefix + topic, AclOperation.READ)
    guarded.allow(ResourceType.GROUP, config.prefix + "resting", AclOperation.READ)
    until(
        lambda: denied() == [f"topic {topic}: this client may not WRITE" for topic in topics], 30, "the lists"
    )
    for topic in topics:
        guarded.allow(ResourceType.TOPIC, config.prefix + topic, AclOperation.WRITE)
    until(lambda: denied() == [], 30, "the lists")
    assert others() == []
