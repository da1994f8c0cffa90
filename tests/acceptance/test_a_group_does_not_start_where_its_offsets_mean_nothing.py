"""Offsets that lead nowhere are never reset in silence: the group refuses with 4, and nothing is applied."""

from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from stream.config import Config
from stream.project import Project
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.waiting import until


@pytest.fixture
def shop(tmp_path: Path, config: Config, environment: dict[str, str]) -> Project:
    """A project whose group has applied 30 events and stands still."""
    project = effect_project(tmp_path / "shop")
    migrate(project, environment)
    publish(config, project, [(f"k{n}", n) for n in range(30)])
    command = consume(project, environment, at_end=True)
    assert command.wait() == 0, command.stderr
    return project


@pytest.fixture
def admin(config: Config) -> AdminClient:
    return AdminClient({"bootstrap.servers": config.bootstrap_servers})


def test_a_topic_that_was_created_again_is_refused_with_4(
    shop: Project, config: Config, environment: dict[str, str], effects: Effects, admin: AdminClient
) -> None:
    name = config.prefix + "things"
    admin.delete_topics([name])[name].result(20)
    until(lambda: name not in admin.list_topics(timeout=10).topics)
    migrate(shop, environment)
    publish(config, shop, [(f"k{n}", n) for n in range(30, 50)])
    command = consume(shop, environment)
    assert command.wait() == 4, command.stderr
    assert "the topic was deleted and created again" in command.stderr
    assert effects.count() == 30


def test_lost_offsets_beyond_what_the_ledger_remembers_are_refused_with_4(
    shop: Project,
    config: Config,
    environment: dict[str, str],
    effects: Effects,
    admin: AdminClient,
    conn: psycopg.Connection[Any],
) -> None:
    group = config.prefix + "testers"
    admin.delete_consumer_groups([group])[group].result(20)
    conn.execute("delete from stream.ledger")
    conn.execute("update stream.group_state set ledger_pruned_before = now()")
    conn.commit()
    command = consume(shop, environment)
    assert command.wait() == 4, command.stderr
    assert "the ledger no longer remembers" in command.stderr
    assert effects.count() == 30
