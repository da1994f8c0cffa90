"""`stream doctor`: each thing that can be wrong, made wrong on a real broker and database."""

from __future__ import annotations

import json
import shlex
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from psycopg import sql

from stream import ConsumerGroup, Context, Event, PermanentError, app
from stream.cli import main
from stream.config import Config
from stream.kafka import admin
from stream.project import Project
from stream.relay import Relay
from stream.stack import ports
from tests.support.cli import hints, stream
from tests.support.groups import Member, publish
from tests.support.letters import halt, rows
from tests.support.small import make_project
from tests.support.topics import delete_topic
from tests.support.waiting import until

RESTING = """
from stream import ConsumerGroup
group = ConsumerGroup("resting", topics=["things"], start="end", batch={batch})
@group.on("Happened")
def rest(event, ctx): pass
"""
QUIET = {"outbox", "members"}  # nobody is at work in most of these tests

Said = list[tuple[str, str, str | None]]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = make_project(tmp_path / "small")
    (project.root / "consumers" / "resting.py").write_text(RESTING.format(batch=1))
    assert stream_schema_check(project) == 0
    return project


@pytest.fixture
def small(config: Config, project: Project) -> Config:
    """A project that is as it has to be."""
    small = replace(config, project=project.root)
    app.migrate(small, project)
    return small


def stream_schema_check(project: Project) -> int:
    return CliRunner().invoke(main, ["schema", "check", "--project", str(project.root)]).exit_code


def examined(config: Config, *, code: int = 0) -> list[dict[str, Any]]:
    result = stream(config, "doctor", "--format", "json")
    assert result.exit_code == code, result.output
    found = json.loads(result.stdout)
    assert all(set(one) == {"check", "status", "message", "fix"} for one in found)
    return list(found)


def wrong(config: Config, *, code: int = 0) -> Said:
    """(check, status, fix) of all that is wrong, but for who is not at work."""
    return [
        (one["check"], one["status"], one["fix"])
        for one in examined(config, code=code)
        if one["status"] != "success" and one["check"] not in QUIET
    ]


def message(config: Config, check: str, *, code: int = 0) -> str:
    return next(one["message"] for one in examined(config, code=code) if one["check"] == check)


def test_a_project_that_is_as_it_has_to_be(small: Config) -> None:
    assert wrong(small) == []
    result = stream(small, "doctor")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].split() == ["STATUS", "CHECK", "MESSAGE"]
    assert "-> stream relay" in result.stdout.splitlines()
    assert "-> stream consume --group resting" in result.stdout.splitlines()
    assert "no failure, 2 warnings" in result.stderr


def test_a_relay_at_work_is_seen(small: Config, project: Project) -> None:
    relay = Relay(small, project)
    relay.run_once()
    try:
        assert message(small, "outbox") == "0 rows waiting, 1 relay at work"
    finally:
        relay.drain(5)


def test_what_is_not_migrated(config: Config, project: Project) -> None:
    small = replace(config, project=project.root)
    found = wrong(small, code=5)
    assert ("migrations", "failure", "stream migrate") in found
    assert ("topics", "failure", "stream migrate") in found
    assert "event type Happened" in message(small, "migrations", code=5)
    with psycopg.connect(small.database_url) as conn:
        conn.execute("drop schema stream cascade")
    found = wrong(small, code=5)
    assert ("migrations", "failure", "stream migrate") in found
    assert ("parked", "halted", "stream migrate") in found
    assert [check for check, status, _ in found if status == "failure"] == ["migrations", "topics"]


def test_a_topic_that_was_grown_by_another_tool(small: Config) -> None:
    client = AdminClient({"bootstrap.servers": small.bootstrap_servers})
    name = small.prefix + "echoes"
    client.create_partitions([NewPartitions(name, 3)])[name].result(20)
    expected = [("partitions", "warning", "stream doctor   (once topics.toml says 3)")]
    until(lambda: wrong(small) == expected)  # the broker hears of it a little later than its controller
    assert "echoes has 3, topics.toml says 2: it was grown by another tool" in message(small, "partitions")


def test_a_topic_that_topics_toml_wants_wider(small: Config, project: Project) -> None:
    catalog = project.root / "schemas" / "topics.toml"
    catalog.write_text(catalog.read_text().replace("partitions = 2", "partitions = 5"))
    assert wrong(small) == [("partitions", "warning", "stream topics grow echoes --partitions 5")]


def test_a_setting_that_is_not_as_in_topics_toml(small: Config, project: Project) -> None:
    catalog = project.root / "schemas" / "topics.toml"
    catalog.write_text(catalog.read_text().replace("partitions = 2", 'partitions = 2\nretention = "30d"'))
    [(check, status, fix)] = wrong(small)
    assert (check, status) == ("settings", "warning")
    assert fix is not None and f"{small.prefix}echoes --add-config retention.ms=2592000000" in fix
    assert "echoes: retention.ms is 604800000, topics.toml says 2592000000" in message(small, "settings")

    resource = ConfigResource(
        ResourceType.TOPIC,
        small.prefix + "echoes",
        incremental_configs=[
            ConfigEntry("retention.ms", "2592000000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    client = AdminClient({"bootstrap.servers": small.bootstrap_servers})
    client.incremental_alter_configs([resource])[resource].result(20)
    until(lambda: wrong(small) == [])


def test_a_topic_that_was_created_again(
    small: Config, project: Project, conn: psycopg.Connection[Any]
) -> None:
    halt(conn, "resting")
    conn.execute('update stream.group_state set halted_at = null, topic_ids = \'{"things": "another"}\'')
    conn.commit()
    assert wrong(small, code=5) == [("identity", "failure", "stream groups describe resting")]


def test_a_ledger_that_remembers_less_than_the_topic_holds(
    small: Config, project: Project, conn: psycopg.Connection[Any]
) -> None:
    conn.execute(
        "insert into stream.group_state (consumer_group, start_policy, topic_ids, ledger_pruned_before)"
        " values ('resting', 'end', jsonb_build_object('things', %s::text), now() + interval '1 minute')",
        [admin.topic_ids(small, ["things"])["things"]],
    )
    conn.commit()
    assert wrong(small) == []
    publish(small, project, [("a", 1)])
    assert wrong(small, code=5) == [("retention", "failure", "stream groups describe resting")]
    assert "run again, these would be applied twice" in message(small, "retention", code=5)


def test_a_role_that_may_not_do_what_it_has_to(small: Config, conn: psycopg.Connection[Any]) -> None:
    role = f"limited_{small.prefix.strip('.')}"
    conn.execute(sql.SQL("create role {} login password 'secret'").format(sql.Identifier(role)))
    conn.execute(sql.SQL("grant usage on schema stream to {}").format(sql.Identifier(role)))
    conn.commit()
    limited = replace(small, database_url=f"postgresql://{role}:secret@{small.database_url.split('@')[1]}")
    try:
        found = wrong(limited, code=5)
        [fix] = [fix for check, status, fix in found if status == "failure"]
        assert {(check, status) for check, status, _ in found if check != "rights"} == {
            (check, "halted")
            for check in ("migrations", "identity", "retention", "holds", "parked", "letters")
        }
        assert "DELETE on stream.assignment" in message(limited, "rights", code=5)
        refused = stream(limited, "outbox", "status")
        assert refused.exit_code == 1
        assert "PostgreSQL refused a statement: permission denied" in refused.stderr
        assert hints(refused) == ["stream doctor"]

        assert fix is not None
        _, _, statements = shlex.split(fix.removesuffix("   (as the owner)"))
        conn.execute(statements.encode())
        conn.commit()
        assert wrong(limited) == []
    finally:
        conn.rollback()
        conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
        conn.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
        conn.commit()


def test_groups_that_are_held(small: Config, conn: psycopg.Connection[Any]) -> None:
    assert stream(small, "groups", "pause", "resting", "--reason", "a test").exit_code == 0
    describe = "stream groups describe resting"
    assert wrong(small) == [("holds", "warning", describe)]
    halt(conn, "resting")
    found = wrong(small, code=5)
    assert found == [("holds", "failure", describe), ("holds", "warning", describe)]


def test_a_key_that_is_held_and_its_letter(
    small: Config, project: Project, conn: psycopg.Connection[Any]
) -> None:
    group = ConsumerGroup("resting", topics=["things"], start="beginning", on_dead="hold")

    @group.on("Happened")
    def fail(event: Event, ctx: Context) -> None:
        raise PermanentError("no lines")

    publish(small, project, [("a", 1), ("a", 2)])
    member = Member(group, project, small)
    until(lambda: rows(conn, "select from stream.dead_letter"))
    member.end()
    assert wrong(small) == [
        ("parked", "warning", "stream parked list --group resting"),
        ("letters", "warning", "stream dlq list --group resting"),
    ]


def test_rows_that_cannot_be_published(
    small: Config, project: Project, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("select stream.append('Happened', 'a', '{\"n\": 1.5}')")
    conn.execute("select stream.append('Echoed', 'a', '{\"n\": 1}')")
    conn.commit()
    delete_topic(small, "echoes")
    relay = Relay(small, project)
    try:
        seen = "select from stream.sick_topic, stream.outbox_rejected"
        until(lambda: relay.run_once() is not None and rows(conn, seen))
    finally:
        relay.drain(5)
    found = [(one["check"], one["status"], one["fix"]) for one in examined(small, code=5)]
    assert ("outbox", "failure", "stream outbox status") in found
    assert ("outbox", "warning", "stream outbox rejected") in found
    assert ("topics", "failure", "stream migrate") in found


def test_schema_files(small: Config, project: Project) -> None:
    folder = project.root / "schemas"
    (folder / "schemas.lock").unlink()
    assert wrong(small) == [("schemas", "warning", "stream schema check")]
    assert stream_schema_check(project) == 0
    path = folder / "0001-Happened.avsc"
    text = path.read_text()
    path.write_text(text.replace('"long"', '"string"'))
    assert [one for one in wrong(small, code=5) if one[0] == "schemas"] == [
        ("schemas", "failure", "stream schema check")
    ]
    path.write_text("{")
    found = wrong(small, code=5)
    assert [(check, status) for check, status, _ in found if status == "failure"] == [
        ("schemas", "failure"),
        ("consumers", "failure"),
    ]


def test_a_group_that_does_not_import(small: Config, project: Project) -> None:
    (project.root / "consumers" / "broken.py").write_text("import nothing_of_that_name")
    found = wrong(small, code=5)
    assert found[0] == ("consumers", "failure", "stream migrate --check   (once it is mended)")
    assert {check for check, status, _ in found if status == "halted"} == {
        "topics", "partitions", "settings", "locks",
    }  # fmt: skip
    assert message(small, "consumers", code=5).endswith(
        "ModuleNotFoundError: No module named 'nothing_of_that_name'"
    )


def test_a_broker_that_is_away_is_one_failure_and_all_else_is_looked_at(small: Config) -> None:
    away = replace(small, bootstrap_servers=f"127.0.0.1:{ports.choose(None)}")
    begin = time.monotonic()
    found = wrong(away, code=5)
    assert time.monotonic() - begin < 12
    assert [(check, status) for check, status, _ in found if status == "failure"] == [("broker", "failure")]
    assert {check for check, status, _ in found if status == "halted"} == {
        "topics", "partitions", "settings", "identity", "retention", "clocks", "permissions",
    }  # fmt: skip


def test_a_database_that_is_away_is_one_failure_and_all_else_is_looked_at(small: Config) -> None:
    away = replace(small, database_url=f"postgresql://user:secret@127.0.0.1:{ports.choose(None)}/shop")
    result = stream(away, "doctor")
    assert "secret" not in result.output
    found = wrong(away, code=5)
    assert [(check, status) for check, status, _ in found if status == "failure"] == [("database", "failure")]
    assert ("topics", "success") in [(one["check"], one["status"]) for one in examined(away, code=5)]


def test_servers_that_take_a_connection_and_say_nothing_cost_ten_seconds(small: Config) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        hung = replace(
            small, bootstrap_servers=address, database_url=f"postgresql://user:secret@{address}/shop"
        )
        begin = time.monotonic()
        found = wrong(hung, code=5)
        assert time.monotonic() - begin < 12
    assert [(check, status) for check, status, _ in found if status == "failure"] == [
        ("broker", "failure"),
        ("database", "failure"),
    ]


def test_where_no_stack_runs_the_project_is_looked_at_all_the_same(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(main, ["doctor", "--project", str(project.root), "--format", "json"])
    assert result.exit_code == 5
    found = {one["check"]: one for one in json.loads(result.stdout)}
    assert found["schemas"]["status"] == found["consumers"]["status"] == "success"
    for server in ("broker", "database"):
        assert found[server]["message"] == f"no {server} given, and no stack of this project is running"
        assert found[server]["fix"] == "stream stack up"
    assert found["outbox"]["status"] == "halted"
