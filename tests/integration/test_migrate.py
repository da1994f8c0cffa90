"""stream migrate: what it says, what it does, and what --check finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream import app, database
from stream.config import Config
from stream.kafka import admin
from stream.project import Project
from stream.topics import Topic
from tests.support.cli import hints, stream
from tests.support.small import make_project

GROUP = """
from stream import ConsumerGroup

group = ConsumerGroup("{name}", topics=["things"], start="beginning")

@group.on("Happened")
def handle(event, ctx): ...
"""


PARKED = """
insert into stream.parked (consumer_group, topic, partition, "offset", event_id, epoch, type, header_names,
                           header_values, timestamp, lane)
values ('testers', 'things', 0, 0, gen_random_uuid(), 0, 'Happened', '{}', '{}', now(), 1)
"""


@pytest.fixture
def shop(tmp_path: Path, config: Config) -> Config:
    """A project with one group, migrated."""
    make_project(tmp_path / "shop")
    config = replace(config, project=tmp_path / "shop")
    add_group(config, "loyalty", "create table if not exists points (n int);")
    assert stream(config, "migrate").exit_code == 0
    return config


def add_group(config: Config, name: str, sql: str) -> None:
    (config.project / "consumers" / f"{name}.py").write_text(GROUP.format(name=name))
    (config.project / "consumers" / f"{name}.sql").write_text(sql)


def test_what_is_migrated_needs_no_migration(shop: Config) -> None:
    assert stream(shop, "migrate").stderr == "nothing to migrate\n"
    assert stream(shop, "migrate", "--check").exit_code == 0


def test_topics_just_made_are_there_for_who_starts_next(config: Config) -> None:
    for n in range(3):  # the broker is still busy with the logs of one when the next is made
        admin.create_topics(config, [Topic(f"wide{n}", (), partitions=64)])
        assert f"wide{n}" in admin.partition_counts(config)


def test_the_tables_of_a_new_group_are_found_by_the_check_and_said_when_made(
    shop: Config, conn: psycopg.Connection[Any]
) -> None:
    add_group(shop, "bonus", "create table if not exists bonus (n int);")
    checked = stream(shop, "migrate", "--check")
    assert checked.exit_code == 5
    assert "tables of group bonus" in checked.stderr
    assert hints(checked) == ["stream migrate"]
    assert conn.execute("select to_regclass('bonus')").fetchone() == (None,)
    assert "topic bonus.retry; topic bonus.dlq" in checked.stderr
    said = stream(shop, "migrate").stderr
    assert said.splitlines() == ["tables of group bonus", "topic bonus.retry", "topic bonus.dlq"]
    assert conn.execute("select count(*) from bonus").fetchone() == (0,)


def test_changed_tables_of_a_group_are_applied_again(shop: Config, conn: psycopg.Connection[Any]) -> None:
    file = shop.project / "consumers" / "loyalty.sql"
    file.write_text(file.read_text() + "\nalter table points add column if not exists key text;")
    assert stream(shop, "migrate", "--check").exit_code == 5
    assert stream(shop, "migrate").stderr == "tables of group loyalty\n"
    assert stream(shop, "migrate").stderr == "nothing to migrate\n"
    assert conn.execute("select count(key) from points").fetchone() == (0,)


def test_the_printed_sql_leaves_no_tables_to_be_made(shop: Config, new_database: Any) -> None:
    url = new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop schema stream cascade")
        connection.execute(app.sql_of(Project(shop.project)).encode())
    assert stream(replace(shop, database_url=url), "migrate", "--check").exit_code == 0


def test_the_check_notices_a_file_of_consumers_that_does_not_import(shop: Config) -> None:
    (shop.project / "consumers" / "broken.py").write_text("import nothing_of_that_name\n")
    checked = stream(shop, "migrate", "--check")
    assert checked.exit_code == 1
    assert "broken.py" in checked.stderr


def test_a_topic_that_the_broker_refuses_is_named_with_its_reason(shop: Config) -> None:
    catalog = shop.project / "schemas" / "topics.toml"
    catalog.write_text(catalog.read_text() + "\n[wider]\nevents = []\npartitions = 1\nreplication = 3\n")
    result = stream(shop, "migrate")
    assert result.exit_code == 1, result.output
    assert f"topic {shop.prefix}wider cannot be created: " in result.stderr
    assert hints(result) == ["stream doctor"]


@pytest.mark.parametrize("stands_in_the_way", ["nothing", "a view", "a transaction"])
def test_what_is_known_of_parked_groups_is_forgotten_where_that_harms_nobody(
    database_url: str, stands_in_the_way: str
) -> None:
    [forget] = [sql for _, name, sql in database.migrations() if name == "group_statistics"]
    known = "select from pg_stats where tablename = 'parked' and attname = 'consumer_group'"
    with psycopg.connect(database_url, autocommit=True) as conn, psycopg.connect(database_url) as other:
        conn.execute("alter table stream.parked alter column consumer_group set statistics -1")  # as it was
        conn.execute(PARKED)
        conn.execute("analyze stream.parked")
        assert conn.execute(known).fetchone() is not None
        if stands_in_the_way == "a view":
            conn.execute("create view of_somebody as select consumer_group from stream.parked")
        elif stands_in_the_way == "a transaction":
            other.execute("select from stream.parked")
        with conn.transaction():
            conn.execute(forget)
        assert (conn.execute(known).fetchone() is None) == (stands_in_the_way == "nothing")
        conn.execute("analyze stream.parked")
        assert (conn.execute(known).fetchone() is None) == (stands_in_the_way == "nothing")
