"""`stream order show`: the steps of an event in a group, whatever became of it, and what people did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from stream import Outbox, PermanentError, TransientError, app
from stream.config import Config
from stream.kafka.search import records_of_key
from stream.project import Project
from stream.relay import Relay
from tests.support.cli import stream, stream_json
from tests.support.letters import Troubled
from tests.support.retries import make_due, retry_records
from tests.support.small import make_project

Conn = psycopg.Connection[Any]


@pytest.fixture
def small(config: Config, tmp_path: Path) -> Config:
    project = make_project(tmp_path / "small")
    small = replace(config, project=project.root)
    app.migrate(small, project)
    return small


@pytest.fixture
def db(small: Config) -> Iterator[Conn]:
    with psycopg.connect(small.database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def troubled(small: Config, effects: object, request: pytest.FixtureRequest) -> Iterator[Troubled]:
    group = Troubled(Project(small.project), small.database_url, on_dead=getattr(request, "param", "hold"))
    yield group
    group.worker.execution.close()


def read(small: Config, db: Conn, troubled: Troubled, count: int) -> None:
    """So many events of key 1, numbered from 1, written and published, and read by the group."""
    db.execute("insert into stream.group_state (consumer_group, start_policy) values ('testers', 'x')")
    for n in range(1, count + 1):
        Outbox(Project(small.project)).append(db, "Happened", key="1", data={"n": n})
    Relay(small, Project(small.project)).run_until_empty()
    for record in records_of_key(small, b"1", ["things"], seconds=60).records:
        troubled.worker.run(record)


def told(small: Config) -> list[list[tuple[str, int | None]]]:
    """(what, attempt) of the steps of each event."""
    events = stream_json(small, "order", "show", "1")["events"]
    return [[(step["what"], step["attempt"]) for step in event["groups"][0]["steps"]] for event in events]


def test_tries_that_failed_and_waiting_behind_them_are_told_after_all_is_done(
    small: Config, db: Conn, troubled: Troubled
) -> None:
    troubled.trouble[1] = TransientError("no route")
    read(small, db, troubled, 2)
    make_due(db)
    troubled.worker.wake(*retry_records(db))
    troubled.heal()
    troubled.go_on(db)
    assert db.execute("select count(*) from stream.parked").fetchall() == [(0,)]
    assert told(small) == [
        [("failed", 1), ("failed", 2), ("done", 3)],
        [("parked", None), ("done", 1)],
    ]


def test_an_event_given_up_while_it_waited_says_by_whom_and_why(
    small: Config, db: Conn, troubled: Troubled
) -> None:
    troubled.trouble[1] = TransientError("no route")
    read(small, db, troubled, 1)
    chosen = ("--group", "testers", "--topic", "things", "--key", "1")
    assert stream(small, "parked", "discard", *chosen, "--reason", "a test order").exit_code == 0
    assert told(small) == [[("failed", 1), ("skipped", 1), ("discarded", None)]]
    text = stream(small, "order", "show", "1").stdout
    assert "testers  discarded by " in text
    assert ": a test order\n" in text


def test_a_held_key_that_was_released_says_so(small: Config, db: Conn, troubled: Troubled) -> None:
    read(small, db, _permanent(troubled), 2)
    chosen = ("--group", "testers", "--topic", "things", "--key", "1")
    assert "which holds its key: " in stream(small, "order", "show", "1").stdout
    assert stream(small, "parked", "release", *chosen).exit_code == 0
    first, second = told(small)
    assert first == [("dead", 1), ("released", None)]
    assert second == [("parked", None)]
    text = stream(small, "order", "show", "1").stdout
    assert "which holds its key" not in text
    assert "testers  released by " in text


@pytest.mark.parametrize("troubled", ["hold", "release"], indirect=True)
def test_a_discarded_letter_says_by_whom_and_why(small: Config, db: Conn, troubled: Troubled) -> None:
    read(small, db, _permanent(troubled), 1)
    assert stream(small, "dlq", "discard", "1", "--reason", "no such order").exit_code == 0
    assert told(small) == [[("dead", 1), ("discarded", None)]]
    text = stream(small, "order", "show", "1").stdout
    assert "testers  letter 1 discarded by " in text
    assert ": no such order\n" in text


@pytest.mark.parametrize("troubled", ["hold", "release"], indirect=True)
def test_an_event_that_died_again_has_both_deaths(small: Config, db: Conn, troubled: Troubled) -> None:
    read(small, db, _permanent(troubled), 1)
    assert stream(small, "dlq", "replay", "1").exit_code == 0
    troubled.go_on(db)
    assert told(small) == [[("dead", 1), ("replayed", None), ("dead", 1)]]
    [event] = stream_json(small, "order", "show", "1")["events"]
    assert [step["letter"] for step in event["groups"][0]["steps"]] == [1, 1, 2]


def test_what_others_wrote_reaches_no_terminal_as_it_is(small: Config, db: Conn, troubled: Troubled) -> None:
    troubled.trouble[1] = TransientError("\x1b]0;gone\x07\r")
    read(small, db, troubled, 1)
    text = stream(small, "order", "show", "1").stdout
    assert "\\x1b]0;gone\\x07\\r" in text
    assert text.replace("\n", "").isprintable()


def _permanent(troubled: Troubled) -> Troubled:
    """Number 1 fails for good."""
    troubled.trouble[1] = PermanentError("no lines")
    return troubled


def test_an_event_that_retention_took_from_its_topic_is_told_as_long_as_a_letter_has_it(
    small: Config, db: Conn, troubled: Troubled
) -> None:
    read(small, db, _permanent(troubled), 1)
    before = stream_json(small, "order", "show", "1")["events"]
    partition, end = (
        before[0]["partition"],
        TopicPartition(small.prefix + "things", before[0]["partition"], 1),
    )
    admin = AdminClient({"bootstrap.servers": small.bootstrap_servers})
    admin.delete_records([end])[end].result(20)
    result = stream(small, "order", "show", "1", "--format", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["events"] == before
    assert (
        f"things[{partition}]@0 was not found in its topic; a letter or a parked row has it" in result.stderr
    )
