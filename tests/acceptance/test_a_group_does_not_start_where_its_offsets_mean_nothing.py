"""Offsets that lead nowhere are never reset in silence: the group refuses with 4, and nothing is applied."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from stream.config import Config
from stream.project import Project
from tests.support.cli import follow, hints, stream
from tests.support.effects import Effects, committed, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.topics import create_topic
from tests.support.waiting import until

pytestmark = pytest.mark.long


SET_ASIDE = """
insert into stream.reapply_parked (consumer_group, topic, partition, "offset", event_id, type, key, value, header_names,
                                   header_values, timestamp, lane)
values ('testers', 'things', 0, 7, gen_random_uuid(), 'Happened', 'k', 'v', '{}', '{}', now(),
        stream.parked_lane('testers', 'things', 'k', 0))
"""


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


def recreate(config: Config, project: Project, admin: AdminClient, events: range) -> None:
    name = config.prefix + "things"
    admin.delete_topics([name])[name].result(20)
    until(lambda: name not in admin.list_topics(timeout=10).topics)
    create_topic(config, "things", 4)
    publish(config, project, [(f"k{n}", n) for n in events])


def test_a_topic_that_was_created_again_is_refused_with_4_until_somebody_says_where_to_begin(
    shop: Project, config: Config, environment: dict[str, str], effects: Effects, admin: AdminClient
) -> None:
    recreate(config, shop, admin, range(30, 50))
    command = consume(shop, environment)
    assert command.wait() == 4, command.stderr
    assert "the topic was deleted and created again" in command.stderr
    assert effects.count() == 30
    own = replace(config, project=shop.root)
    listed = stream(own, "groups", "list")
    assert "TOPIC RECREATED" in listed.stdout
    [adopt] = hints(listed)
    assert f"-> {adopt}" in command.stderr
    done = follow(own, adopt)
    assert (done.exit_code, "20 records to read" in done.stderr) == (0, True), done.output
    command = consume(shop, environment, at_end=True)
    assert command.wait() == 0, command.stderr
    assert effects.by_key() == {f"k{n}": [n] for n in range(50)}
    again = follow(own, adopt)
    assert (again.exit_code, "nothing is to be adopted" in again.stderr) == (4, True)


@pytest.mark.parametrize("events", [range(30, 32), range(30, 230)], ids=["shorter", "longer"])
def test_a_topic_created_again_under_a_running_group_stops_it(
    events: range,
    shop: Project,
    config: Config,
    environment: dict[str, str],
    effects: Effects,
    admin: AdminClient,
) -> None:
    """Also where the new topic has a record at every offset that the group would read next."""
    running = consume(shop, environment)
    running.says("partitions.assigned")
    recreate(config, shop, admin, events)
    assert running.wait() == 4, running.stderr
    assert "the topic was deleted and created again" in running.stderr
    assert "-> stream groups adopt testers --topic things --to-earliest" in running.stderr
    assert effects.count() == 30
    own = replace(config, project=shop.root)
    done = stream(own, "groups", "adopt", "testers", "--topic", "things", "--to-latest")
    assert (done.exit_code, "0 records to read" in done.stderr) == (0, True), done.output
    command = consume(shop, environment, at_end=True)
    assert command.wait() == 0, command.stderr
    assert effects.count() == 30


def test_what_a_range_run_again_had_set_aside_of_the_old_topic_is_called_once_more(
    shop: Project, config: Config, admin: AdminClient, conn: psycopg.Connection[Any]
) -> None:
    conn.execute(SET_ASIDE)
    conn.commit()
    recreate(config, shop, admin, range(30, 32))
    own = replace(config, project=shop.root)
    done = stream(own, "groups", "adopt", "testers", "--topic", "things", "--to-latest")
    assert done.exit_code == 0, done.output
    heads = "select count(*) from stream.parked where due_at is not null and nudge_at is not null"
    assert conn.execute(heads).fetchone() == (1,)
    assert conn.execute("select topic from stream.scheduled").fetchall() == [("testers.retry",)]


def test_an_offset_beyond_the_end_is_refused_with_4(
    shop: Project, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    consumer = Consumer(
        {"bootstrap.servers": config.bootstrap_servers, "group.id": config.prefix + "testers"}
    )
    beyond = TopicPartition(config.prefix + "things", 2, 1000)
    consumer.commit(offsets=[beyond], asynchronous=False)
    consumer.close()
    command = consume(shop, environment)
    assert command.wait() == 4, command.stderr
    assert "does not start on things[2]: offset 1000 lies beyond the end" in command.stderr
    assert "-> stream rewind --group testers --topic things" in command.stderr
    assert committed(config)[2] == 1000
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
