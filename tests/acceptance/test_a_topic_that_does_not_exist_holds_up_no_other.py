"""No error comes at all for it: the relay asks, says so, and goes on by itself once the topic is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg

from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.topics import create_topic, delete_topic
from tests.support.truth import Truth
from tests.support.waiting import until


def test_its_events_wait_the_others_are_out_within_two_seconds(
    config: Config, environment: dict[str, str], tmp_path: Path, conn: psycopg.Connection[Any]
) -> None:
    create_topic(config, "things", 4)
    truth = Truth(config, make_project(tmp_path / "small"), migrate=False)
    relay = Command("relay", env=environment, cwd=truth.project.root)
    for _ in range(3):
        truth.commit("k", "l", type="Echoed")
    relay.says("relay.topic_sick")
    latencies = []
    for _ in range(10):
        truth.commit("k", "l", "m")
        committed = time.monotonic()
        until(lambda: topics_with_rows(conn) == ["echoes"], 10)
        latencies.append(time.monotonic() - committed)
    assert max(latencies) < 2
    assert conn.execute("select topic, reason from stream.sick_topic").fetchall() == [
        ("echoes", "the topic does not exist")
    ]
    conn.rollback()

    create_topic(config, "echoes", 2)
    truth.wait_published(10)
    until(
        lambda: conn.execute("select count(*) from stream.sick_topic").fetchone() == (0,) or conn.rollback(),
        5,
    )
    truth.check("things", "echoes")

    delete_topic(config, "echoes")
    truth.commit("k", "k", type="Echoed")
    until(
        lambda: (
            "the topic does not exist" in str(conn.execute("select * from stream.sick_topic").fetchall())
            or conn.rollback()
        ),
        10,
    )
    conn.rollback()
    create_topic(config, "echoes", 2)
    truth.wait_published(15)
    assert relay.stop() == 0


def topics_with_rows(conn: psycopg.Connection[Any]) -> list[str]:
    rows = conn.execute("select distinct topic from stream.outbox").fetchall()
    conn.rollback()
    return [topic for (topic,) in rows]
