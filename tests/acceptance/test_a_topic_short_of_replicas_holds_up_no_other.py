"""Too few in-sync replicas: the broker takes nothing, and says nothing. Two brokers, one of which hangs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from tests.support.brokers import SecondBroker
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.truth import Truth
from tests.support.waiting import until


@pytest.fixture
def second_broker(config: Config, stack_data: Path, tmp_path: Path) -> Iterator[SecondBroker]:
    broker = SecondBroker(stack_data / ".stream", tmp_path / "second", config)
    yield broker
    broker.stop()


def test_the_others_are_out_within_two_seconds_and_it_goes_on_by_itself_when_it_is_mended(
    config: Config,
    environment: dict[str, str],
    tmp_path: Path,
    second_broker: SecondBroker,
    conn: psycopg.Connection[Any],
) -> None:
    second_broker.create_topics({"echoes": [[1, 2]], "things": [[1], [1]]}, min_insync=2)
    truth = Truth(config, make_project(tmp_path / "small"))
    relay = Command("relay", env=environment, cwd=truth.project.root)
    truth.commit("k", "l", type="Echoed")
    truth.commit("k", "l")
    truth.wait_published()

    second_broker.hang()
    until(lambda: second_broker.in_sync("echoes") == 1, 20)
    for _ in range(3):
        truth.commit("k", "l", type="Echoed")
    latencies = []
    while "relay.topic_sick" not in relay.stderr or len(latencies) < 20:
        truth.commit("k", "l", "m")
        committed = time.monotonic()
        until(lambda: left(conn, "things") == 0, 10)
        latencies.append(time.monotonic() - committed)
    assert max(latencies) < 2
    assert left(conn, "echoes") == 6
    until(
        lambda: "too few in-sync replicas: 1 of the 2" in str(sick_topics(conn)),
        10,
        lambda: str(sick_topics(conn)),
    )

    second_broker.go_on()
    truth.wait_published(20)
    relay.says("relay.topic_well")
    until(lambda: sick_topics(conn) == [], 5)
    assert relay.stop() == 0
    truth.check("things", "echoes")


def left(conn: psycopg.Connection[Any], topic: str) -> int:
    [(rows,)] = conn.execute("select count(*) from stream.outbox where topic = %s", [topic])
    conn.rollback()
    return int(rows)


def sick_topics(conn: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    rows = conn.execute("select topic, reason from stream.sick_topic").fetchall()
    conn.rollback()
    return rows
