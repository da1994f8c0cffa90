"""First starts: at a time, at the end, and on a partition that comes while a group is running."""

import time
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewPartitions

from stream.config import Config
from tests.support.effects import Effects, committed, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.topics import read_all
from tests.support.waiting import until


def test_a_group_that_starts_at_a_time_acts_on_what_came_since(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    project = effect_project(tmp_path / "shop", "unused")
    migrate(project, environment)
    publish(config, project, [(f"k{n}", n) for n in range(20)])
    since = 1 + max(record.timestamp()[1] for record in read_all(config, "things"))
    until(lambda: time.time() * 1000 > since)
    publish(config, project, [(f"k{n}", n) for n in range(20, 35)])

    start = datetime.fromtimestamp(since / 1000, UTC).isoformat()
    project = effect_project(tmp_path / "later", start=start)
    migrate(project, environment)
    command = consume(project, environment, at_end=True)
    assert command.wait() == 0, command.stderr
    assert effects.by_key() == {f"k{n}": [n] for n in range(20, 35)}
    assert '"will_act_on": 15' in command.stderr


def test_a_time_that_nothing_came_since_is_the_end(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    project = effect_project(tmp_path / "shop", start="2100-01-01")
    migrate(project, environment)
    publish(config, project, [(f"k{n}", n) for n in range(20)])
    command = consume(project, environment, at_end=True)
    assert command.wait() == 0, command.stderr
    assert '"will_act_on": 0' in command.stderr
    publish(config, project, [(f"k{n}", n) for n in range(20, 25)])
    assert consume(project, environment, at_end=True).wait() == 0
    assert effects.by_key() == {f"k{n}": [n] for n in range(20, 25)}


def test_a_partition_that_comes_while_the_group_runs_is_read_from_its_beginning(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    """Also by a group that began at the end: what was written to it before it was assigned is not old."""
    project = effect_project(tmp_path / "shop", start="end")
    migrate(project, environment)
    publish(config, project, [(f"old{n}", n) for n in range(20)])
    running = consume(project, environment)
    running.says("partitions.assigned")
    admin = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    name = config.prefix + "things"
    admin.create_partitions([NewPartitions(name, 6)])[name].result(20)
    until(lambda: len(admin.list_topics(name, timeout=10).topics[name].partitions) == 6)
    publish(config, project, [(f"new{n}", n) for n in range(60)])
    assert {record.partition() for record in read_all(config, "things")} == set(range(6))
    until(lambda: effects.count() == 60, 30, lambda: running.stderr)
    until(lambda: len(committed(config)) == 6)
    assert running.stop() == 0
    assert effects.by_key() == {f"new{n}": [n] for n in range(60)}
