"""`stream ledger prune`: what may be forgotten, and what may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from stream import ConsumerGroup, Context, Event, PermanentError, pruning
from stream.config import Config
from stream.database import query
from stream.kafka import admin
from stream.overview import Known
from stream.project import Project
from stream.pruning import Pruning
from tests.support.cli import follow, hints, stream, stream_json
from tests.support.groups import Member, publish
from tests.support.letters import rows
from tests.support.small import make_project
from tests.support.topics import create_topic, delete_topic
from tests.support.waiting import until

INSERT = """
insert into stream.ledger (consumer_group, event_id, attempts, worker, at)
select %s, gen_random_uuid(), 1, 'w1', now() - %s * interval '1 day' from generate_series(1, %s)
"""
HORIZON = "select consumer_group, ledger_pruned_before is not null from stream.group_state order by 1"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "small")


@pytest.fixture
def small(config: Config, project: Project) -> Config:
    for topic in ("things", "testers.retry", "testers.dlq"):
        create_topic(config, topic, 2)
    return replace(config, project=project.root)


@pytest.fixture
def remembering(small: Config, conn: psycopg.Connection[Any]) -> Callable[..., None]:
    """Makes ledger rows of a group that reads things: so many, of that age in days."""

    def make(group: str, count: int, days: float) -> None:
        conn.execute(
            "insert into stream.group_state (consumer_group, start_policy, topic_ids)"
            " values (%s, 'beginning', jsonb_build_object('things', %s::text)) on conflict do nothing",
            [group, admin.topic_ids(small, ["things"])["things"]],
        )
        conn.execute(INSERT, [group, days, count])
        conn.commit()

    return make


def left(conn: psycopg.Connection[Any]) -> dict[str, int]:
    return dict(rows(conn, "select consumer_group, count(*) from stream.ledger group by 1"))


def test_a_plan_counts_by_group_and_changes_nothing_until_it_is_executed(
    small: Config, project: Project, conn: psycopg.Connection[Any], remembering
) -> None:
    publish(small, project, [("a", 1)])  # a record of today
    remembering("testers", 7, 100)
    remembering("testers", 3, 10)
    remembering("others", 2, 400)
    plan = stream_json(small, "ledger", "prune", "--older-than", "90d")
    assert [(one["group"], one["rows"], one["needed"]) for one in plan] == [
        ("others", 2, None),
        ("testers", 7, None),
    ]
    result = stream(small, "ledger", "prune", "--older-than", "90d")
    assert result.exit_code == 0, result.output
    assert left(conn) == {"testers": 10, "others": 2}
    assert rows(conn, HORIZON) == [("others", False), ("testers", False)]

    [command] = hints(result)
    assert command == "stream ledger prune --older-than 90d --execute"
    before = datetime.now(UTC)
    result = follow(small, command)
    assert result.exit_code == 0, result.output
    assert "9 rows deleted" in result.stderr
    assert left(conn) == {"testers": 3}
    [(horizon,)] = rows(conn, "select distinct ledger_pruned_before from stream.group_state")
    assert timedelta(0) <= horizon - (before - timedelta(days=90)) < timedelta(minutes=1)
    done = rows(
        conn, "select action, target, parameters ->> 'rows' from stream.operator_action order by target"
    )
    assert done == [("ledger prune", "others", "2"), ("ledger prune", "testers", "7")]
    result = stream(small, "ledger", "prune", "--older-than", "90d", "--execute")
    assert (result.exit_code, result.stdout) == (0, "")
    assert stream_json(small, "ledger", "prune", "--older-than", "90d") == []


def test_one_group_alone_is_pruned(small: Config, conn: psycopg.Connection[Any], remembering) -> None:
    remembering("testers", 2, 100)
    remembering("others", 2, 100)
    result = stream(small, "ledger", "prune", "--older-than", "90d", "--group", "others", "--execute")
    assert result.exit_code == 0, result.output
    assert left(conn) == {"testers": 2}
    assert rows(conn, HORIZON) == [("others", True), ("testers", False)]
    result = stream(small, "ledger", "prune", "--older-than", "90d", "--group", "other")
    assert result.exit_code == 2
    assert follow(small, hints(result)[0]).exit_code == 0


def test_rows_are_kept_while_the_log_holds_records_from_then(
    small: Config, project: Project, conn: psycopg.Connection[Any], remembering
) -> None:
    remembering("testers", 2, 1)
    publish(small, project, [("a", 1)])
    for words in ([], ["--execute"], ["--format", "json"]):
        result = stream(small, "ledger", "prune", "--older-than", "1s", *words)
        assert result.exit_code == 4, result.output
        assert "a rewind would apply them again" in result.stderr
    assert left(conn) == {"testers": 2}
    assert rows(conn, HORIZON) == [("testers", False)]
    assert hints(result) == ["stream ledger prune --group testers --older-than 1d"]
    assert follow(small, hints(result)[0]).exit_code == 0

    client = AdminClient({"bootstrap.servers": small.bootstrap_servers})
    for number in range(2):  # retention takes the record
        everything = TopicPartition(small.prefix + "things", number, -1)
        client.delete_records([everything])[everything].result(20)
    result = stream(small, "ledger", "prune", "--older-than", "1s", "--execute")
    assert result.exit_code == 0, result.output
    assert left(conn) == {}


def test_rows_are_kept_where_the_topic_is_another_one(
    small: Config, conn: psycopg.Connection[Any], remembering
) -> None:
    remembering("testers", 2, 100)
    delete_topic(small, "things")
    result = stream(small, "ledger", "prune", "--older-than", "90d")
    assert (result.exit_code, "topic things is not on this cluster" in result.stderr) == (4, True), (
        result.output
    )
    create_topic(small, "things", 2)
    result = stream(small, "ledger", "prune", "--older-than", "90d", "--execute")
    assert (result.exit_code, "not the one that the group has read" in result.stderr) == (4, True), (
        result.output
    )
    assert left(conn) == {"testers": 2}


def test_rows_of_an_open_letter_are_kept_until_it_is_closed(
    small: Config, project: Project, conn: psycopg.Connection[Any]
) -> None:
    group = ConsumerGroup("testers", topics=["things"], start="beginning", on_dead="hold")

    @group.on("Happened")
    def fail(event: Event, ctx: Context) -> None:
        raise PermanentError("no lines")

    publish(small, project, [("a", 1)])
    member = Member(group, project, small)
    until(lambda: rows(conn, "select from stream.dead_letter"))
    member.end()
    conn.execute("update stream.ledger set at = at - interval '100 days'")
    conn.commit()
    result = stream(small, "ledger", "prune", "--older-than", "90d", "--execute")
    assert (result.exit_code, hints(result)) == (4, ["stream parked list --group testers"]), result.output
    assert stream(small, "parked", "release", "--group", "testers", "--execute").exit_code == 0
    result = stream(small, "ledger", "prune", "--older-than", "90d", "--execute")
    assert (result.exit_code, hints(result)) == (4, ["stream dlq list --group testers"]), result.output
    assert len(left(conn)) == 1
    assert stream(small, "dlq", "discard", "1", "--reason", "a test").exit_code == 0
    result = stream(small, "ledger", "prune", "--older-than", "90d", "--execute")
    assert (result.exit_code, left(conn)) == (0, {}), result.output


def test_pruning_stopped_half_way_has_its_horizon_and_goes_on(
    small: Config, database_url: str, conn: psycopg.Connection[Any], remembering
) -> None:
    remembering("testers", pruning.ROWS_AT_ONCE + 10, 100)
    remembering("others", 5, 100)
    with psycopg.connect(database_url, autocommit=True) as own:
        before = datetime.now(UTC) - timedelta(days=90)
        found = pruning.plan(small, own, Known({}, {}, ()), before, "testers")
        run = Pruning(own, found, before)
        run.tell = lambda _: run.stopping.set()
        run.run()
    assert (run.complete, run.deleted) == (False, pruning.ROWS_AT_ONCE)
    assert left(conn) == {"testers": 10, "others": 5}
    assert rows(conn, HORIZON) == [("others", False), ("testers", True)]
    result = stream(small, "ledger", "prune", "--older-than", "90d", "--group", "testers", "--execute")
    assert result.exit_code == 0, result.output
    assert left(conn) == {"others": 5}


def test_rows_are_found_by_their_time(conn: psycopg.Connection[Any], remembering) -> None:
    remembering("testers", 20_000, 1)
    remembering("testers", 10, 100)
    conn.execute("analyze stream.ledger")
    now = datetime.now(UTC)
    arguments = {"groups": ["testers"], "reached": datetime.min.replace(tzinfo=UTC), "most": 5000}
    arguments["before"] = now - timedelta(days=90)
    plan = conn.execute("explain " + query("prune_ledger"), arguments).fetchall()
    assert any("using ledger_at" in line for (line,) in plan), plan
    arguments = {"before": now - timedelta(days=90), "group": None}
    plan = conn.execute("explain " + query("ledger_older"), arguments).fetchall()
    assert any("ledger_at" in line for (line,) in plan), plan
