"""More partitions: refused while a group has something left of the topic, and on record where another tool did it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from stream import database
from stream.config import Config
from stream.project import Project
from stream.views import GrownPartition, grown_partitions
from tests.support.cli import follow, hints, stream, stream_json
from tests.support.effects import Effects, committed, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.topics import read_all
from tests.support.waiting import until

pytestmark = pytest.mark.long

GROW = ("topics", "grow", "things", "--partitions", "6")


@pytest.fixture
def shop(tmp_path: Path, config: Config, environment: dict[str, str]) -> Iterator[Project]:
    """Two groups: `testers` has read all of the topic, `others` has not read the second half."""
    project = effect_project(tmp_path / "shop", "testers", "others")
    migrate(project, environment)
    publish(config, project, [(f"k{n}", n) for n in range(20)])
    both = consume(project, environment, "testers", "others", at_end=True)
    assert both.wait() == 0, both.stderr
    publish(config, project, [(f"k{n}", n) for n in range(20, 40)])
    one = consume(project, environment, at_end=True)
    assert one.wait() == 0, one.stderr
    return project


def partitions(config: Config) -> int:
    name = config.prefix + "things"
    admin = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    return len(admin.list_topics(name, timeout=10).topics[name].partitions)


def grown(config: Config) -> list[GrownPartition]:
    with database.connect(config.database_url, application_name="test") as connection:
        return grown_partitions(connection)


def test_growing_is_refused_until_every_group_is_drained_and_then_read_from_the_beginning(
    shop: Project,
    config: Config,
    environment: dict[str, str],
    effects: Effects,
    conn: psycopg.Connection[Any],
) -> None:
    own = replace(config, project=shop.root)
    for options in ((), ("--execute",)):
        refused = stream(own, *GROW, *options)
        assert refused.exit_code == 4, refused.output
        assert "others (20 records, 0 parked keys)" in refused.stderr
        assert "testers (" not in refused.stderr
        assert hints(refused) == ["stream groups describe others"]
    assert partitions(config) == 4

    late = consume(shop, environment, "others", at_end=True)
    assert late.wait() == 0, late.stderr
    planned = stream(own, *GROW)
    assert planned.exit_code == 0, planned.output
    assert planned.stdout.splitlines()[0] == "things: 4 partitions, to be 6"
    assert partitions(config) == 4
    running = consume(shop, environment, "testers")
    running.says("partitions.assigned")
    done = follow(own, hints(planned)[0])
    assert done.exit_code == 0, done.output
    assert "schemas/topics.toml says 4: write 6 there" in done.stderr
    assert partitions(config) == 6
    publish(config, shop, [(f"new{n}", n) for n in range(60)])
    assert {record.partition() for record in read_all(config, "things")} == set(range(6))
    until(lambda: effects.count() == 100, 60, lambda: running.stderr)
    until(lambda: len(committed(config)) == 6)
    assert running.stop() == 0
    assert {f"new{n}": [n] for n in range(60)}.items() <= effects.by_key().items()
    [(who, parameters)] = conn.execute("select who, parameters from stream.operator_action").fetchall()
    assert parameters == {"from": 4, "to": 6}
    assert {(one.group, one.topic, one.partition, one.by) for one in grown(config)} == {
        ("testers", "things", 4, who), ("testers", "things", 5, who)
    }  # fmt: skip
    assert stream(own, *GROW, "--execute").exit_code == 2


def test_what_another_tool_grew_is_read_from_its_beginning_and_on_record(
    shop: Project, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    running = consume(shop, environment, "testers")
    running.says("partitions.assigned")
    admin = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    name = config.prefix + "things"
    admin.create_partitions([NewPartitions(name, 5)])[name].result(20)
    until(lambda: partitions(config) == 5)
    publish(config, shop, [(f"new{n}", n) for n in range(60)])
    until(lambda: effects.count() == 100, 60, lambda: running.stderr)
    until(lambda: len(committed(config)) == 5)
    assert running.stop() == 0
    assert [(one.group, one.topic, one.partition, one.by) for one in grown(config)] == [
        ("testers", "things", 4, None)
    ]
    own = replace(config, project=shop.root)
    [shown] = stream_json(own, "groups", "describe", "testers")["grown"]
    assert (shown["topic"], shown["partition"], shown["by"]) == ("things", 4, None)
    text = stream(own, "groups", "describe", "testers").stdout
    assert "grown    things[4] came later, with another tool; read since 20" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("topics", "grow", "thing", "--partitions", "6"),
            "there is no topic 'thing'; did you mean 'things'?",
        ),
        (
            ("topics", "grow", "things", "--partitions", "4"),
            "expected more than the 4 that things has, got 4",
        ),
        (("topics", "grow", "things"), "--partitions"),
    ],
)
def test_what_cannot_be_grown_is_told(
    words: tuple[str, ...], said: str, tmp_path: Path, config: Config, environment: dict[str, str]
) -> None:
    project = effect_project(tmp_path / "shop")
    migrate(project, environment)
    result = stream(replace(config, project=project.root), *words)
    assert (result.exit_code, said in result.stderr) == (2, True), result.output
