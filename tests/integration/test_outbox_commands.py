"""`stream outbox`: what is shown, what acts at once, what asks for --execute."""

from __future__ import annotations

import json
import shlex
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream import Outbox, app
from stream.config import Config
from stream.project import Project
from stream.relay import Relay
from tests.support.cli import hints, stream, stream_json
from tests.support.small import make_project
from tests.support.topics import read_all
from tests.support.waiting import until

Conn = psycopg.Connection[Any]
BAD = {"n": 1.5}  # a number, as the field wants, but no whole one: only the relay finds out


@pytest.fixture
def small(config: Config, tmp_path: Path) -> Iterator[Config]:
    project = make_project(tmp_path / "small")
    small = replace(config, project=project.root)
    app.migrate(small, project)
    yield small


@pytest.fixture
def db(small: Config) -> Iterator[Conn]:
    with psycopg.connect(small.database_url, autocommit=True) as connection:
        yield connection


def append(db: Conn, key: str, *numbers: object, type: str = "Happened") -> list[uuid.UUID]:
    """Events from plain SQL, which the relay encodes."""
    events = [{"type": type, "key": key, "data": {"n": n}} for n in numbers]
    return [id for (id,) in db.execute("select stream.append_many(%s::jsonb)", [json.dumps(events)])]


def relay_once(config: Config) -> None:
    Relay(config, Project(config.project)).run_until_empty()


def reject(db: Conn, config: Config, *keys: str) -> None:
    """Of each key three rows: one that does not fit, and two behind it."""
    for key in keys:
        append(db, key, BAD["n"], 2, 3)
    relay_once(config)


def mend(db: Conn) -> None:
    """What an operator does: the data of the rows that did not fit are made right."""
    db.execute("update stream.outbox_rejected set data = '{\"n\": 1}' where reason = 'invalid'")


def published(config: Config, key: str) -> list[int]:
    codec = Project(config.project).codec
    return [codec.decode(m.value())[1]["n"] for m in read_all(config, "things") if m.key() == key.encode()]


def test_an_empty_outbox_says_so_and_that_no_relay_is_at_work(small: Config) -> None:
    result = stream(small, "outbox", "status")
    assert result.exit_code == 0
    assert result.stdout.split() == ["pending", "0", "scheduled", "0", "rejected", "0"]
    assert hints(result) == ["stream relay"]
    assert stream_json(small, "outbox", "status") == {
        "pending": 0, "oldest_seconds": None, "scheduled": 0, "rejected": 0, "sick_topics": [], "relays": []
    }  # fmt: skip


def test_the_status_counts_what_waits_and_what_is_set_aside(small: Config, db: Conn) -> None:
    reject(db, small, "a")
    append(db, "b", 1, 2)
    Outbox(Project(small.project)).append(db, "Happened", key="c", data={"n": 1}, delay=3600)
    db.execute("update stream.outbox set created_at = created_at - interval '1 minute'")
    db.execute(
        "insert into stream.sick_topic values ('echoes', 'too few in-sync replicas', '2026-08-02 14:00+02')"
    )
    status = stream_json(small, "outbox", "status")
    assert (status["pending"], status["scheduled"], status["rejected"]) == (2, 1, 3)
    assert 60 <= status["oldest_seconds"] < 90
    assert status["sick_topics"] == [
        {"topic": "echoes", "reason": "too few in-sync replicas", "since": "2026-08-02T12:00:00Z"}
    ]
    assert "oldest for 60." in stream(small, "outbox", "status").stdout


def test_the_status_shows_each_relay_and_how_many_shards_it_owns(small: Config) -> None:
    relays = [Relay(small, Project(small.project)) for _ in range(2)]
    threads = [threading.Thread(target=relay.run) for relay in relays]
    begun = datetime.now(UTC) - timedelta(seconds=5)
    try:
        for thread in threads:
            thread.start()
        until(lambda: [r["shards"] for r in stream_json(small, "outbox", "status")["relays"]] == [32, 32])
        for shown in stream_json(small, "outbox", "status")["relays"]:
            assert begun < datetime.fromisoformat(shown["since"]) <= datetime.now(UTC) + timedelta(seconds=5)
            assert shown["client"] == "127.0.0.1"
        assert stream(small, "outbox", "status").stdout.count("32 of 64 shards") == 2
    finally:
        for relay in relays:
            relay.stop()
        for thread in threads:
            thread.join()
    until(lambda: stream_json(small, "outbox", "status")["relays"] == [])


def test_peek_shows_the_oldest_rows_with_their_data(small: Config, db: Conn) -> None:
    [first, *_] = append(db, "a", 1, 2, 3)
    Outbox(Project(small.project)).append(db, "Echoed", key="Größe\n", data={"n": 4})
    rows = stream_json(small, "outbox", "peek", "--limit", "2")
    assert [(row["key"], row["type"], row["data"]) for row in rows] == [
        ("a", "Happened", {"n": 1}), ("a", "Happened", {"n": 2})
    ]  # fmt: skip
    assert rows[0]["event_id"] == str(first)
    [echo] = stream_json(small, "outbox", "peek", "--topic", "echoes")
    assert (echo["key"], echo["data"]) == ("\\x4772c3b6c39f650a", {"n": 4})
    [same] = stream_json(small, "outbox", "peek", "--key", echo["key"])
    assert same["id"] == echo["id"]
    assert "\\x4772c3b6c39f650a" in stream(small, "outbox", "peek").stdout


def test_rejected_shows_the_cause_and_the_rows_behind_it(small: Config, db: Conn) -> None:
    reject(db, small, "a")
    rows = stream_json(small, "outbox", "rejected")
    assert [(row["topic"], row["key"], row["type"], row["reason"]) for row in rows] == [
        ("things", "a", "Happened", "invalid"),
        ("things", "a", "Happened", "behind"),
        ("things", "a", "Happened", "behind"),
    ]
    assert "n: expected" in rows[0]["error"]
    assert sorted(rows, key=lambda row: row["id"]) == rows
    text = stream(small, "outbox", "rejected")
    assert text.stdout.splitlines()[0].split() == ["ID", "TOPIC", "KEY", "TYPE", "REASON", "AGE", "ERROR"]
    assert text.stdout.count("behind") == 2


def test_retry_of_one_key_acts_at_once_and_in_the_old_order(small: Config, db: Conn) -> None:
    reject(db, small, "a", "b")
    append(db, "a", 4)
    mend(db)
    result = stream(small, "outbox", "retry", "--key", "a")
    assert result.exit_code == 0, result.output
    assert "things a: 4 rows back in the outbox" in result.stderr
    relay_once(small)
    assert published(small, "a") == [1, 2, 3, 4]
    assert published(small, "b") == []
    assert stream_json(small, "outbox", "status")["rejected"] == 3


def test_retry_of_several_keys_is_a_plan_until_it_is_executed(small: Config, db: Conn) -> None:
    reject(db, small, "a", "b")
    mend(db)
    plan = stream(small, "outbox", "retry")
    assert plan.exit_code == 0
    assert [line.split()[:3] for line in plan.stdout.splitlines()[1:]] == [
        ["things", "a", "3"],
        ["things", "b", "3"],
    ]
    assert stream_json(small, "outbox", "status")["rejected"] == 6
    [command] = hints(plan)
    assert stream(small, *shlex.split(command)[1:]).exit_code == 0
    assert stream_json(small, "outbox", "status")["rejected"] == 0
    relay_once(small)
    assert published(small, "a") == published(small, "b") == [1, 2, 3]


def test_retry_with_nothing_rejected_has_nothing_to_do(small: Config) -> None:
    assert stream(small, "outbox", "retry", "--execute").exit_code == 0
    missing = stream(small, "outbox", "retry", "--key", "nobody")
    assert missing.exit_code == 1
    assert "no rejected row of key 'nobody'" in missing.stderr


def test_retry_waits_for_a_transaction_of_the_key_and_then_refuses(
    small: Config, db: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream.rejected.LOCK_TIMEOUT", "200ms")
    reject(db, small, "a", "b")
    with psycopg.connect(small.database_url) as other:
        append(other, "a", 9)
        one = stream(small, "outbox", "retry", "--key", "a")
        assert one.exit_code == 4
        assert "did not end within 200ms" in one.stderr
        assert hints(one) == ["stream outbox retry --topic things --key a"]
        both = stream(small, "outbox", "retry", "--execute")
        assert both.exit_code == 6
        assert "things a: a transaction" in both.stderr
        assert "things b: 3 rows back in the outbox" in both.stderr


def test_discard_of_one_row_leaves_those_behind_it_to_be_retried(small: Config, db: Conn) -> None:
    reject(db, small, "a")
    id = stream_json(small, "outbox", "rejected")[0]["id"]
    result = stream(small, "outbox", "discard", "--id", str(id), "--reason", "a test")
    assert result.exit_code == 0, result.output
    [command] = hints(result)
    assert stream(small, *shlex.split(command)[1:]).exit_code == 0
    relay_once(small)
    assert published(small, "a") == [2, 3]


def test_discard_of_one_key_frees_it(small: Config, db: Conn) -> None:
    reject(db, small, "a", "b")
    append(db, "a", 4)
    result = stream(small, "outbox", "discard", "--key", "a", "--reason", "a test")
    assert "things a: 3 rows discarded: Happened " in result.stderr
    relay_once(small)
    assert published(small, "a") == [4]
    assert [row["key"] for row in stream_json(small, "outbox", "rejected")] == ["b", "b", "b"]


def test_a_row_that_a_relay_saw_behind_a_discarded_one_is_published(small: Config, db: Conn) -> None:
    reject(db, small, "a")
    append(db, "a", 4)
    [(old_id,)] = db.execute("select id from stream.outbox")
    stream(small, "outbox", "discard", "--key", "a", "--reason", "a test")
    [(new_id,)] = db.execute("select id from stream.outbox")
    assert new_id != old_id  # a relay that would set the old one aside finds nothing


def test_discard_of_several_is_a_plan_until_it_is_executed(small: Config, db: Conn) -> None:
    reject(db, small, "a", "b")
    plan = stream(small, "outbox", "discard", "--topic", "things", "--reason", "all of it")
    assert plan.exit_code == 0
    assert stream_json(small, "outbox", "status")["rejected"] == 6
    [command] = hints(plan)
    assert stream(small, *shlex.split(command)[1:]).exit_code == 0
    assert stream_json(small, "outbox", "status")["rejected"] == 0


def test_discard_wants_a_reason_and_something_to_discard(small: Config) -> None:
    assert stream(small, "outbox", "discard", "--key", "a").exit_code == 2
    assert stream(small, "outbox", "discard", "--reason", "because").exit_code == 2
    assert stream(small, "outbox", "discard", "--key", "a", "--reason", " ").exit_code == 2
    assert stream(small, "outbox", "discard", "--key", "a", "--reason", "because").exit_code == 1


def test_what_people_did_is_written_down_with_their_reason(small: Config, db: Conn) -> None:
    reject(db, small, "a", "b")
    [lost, *_] = stream_json(small, "outbox", "rejected")
    stream(small, "outbox", "discard", "--id", str(lost["id"]), "--reason", "a test order")
    stream(small, "outbox", "retry", "--key", "b")
    rows = db.execute(
        "select action, target, result, reason, parameters, who from stream.operator_action order by id"
    )
    [discarded, retried] = rows.fetchall()
    assert discarded[:4] == ("outbox discard", "things a", "1 rows", "a test order")
    assert discarded[4]["rows"][0]["event_id"] == lost["event_id"]
    assert retried[:4] == ("outbox retry", "things b", "3 rows", None)
    assert "@" in retried[5]
