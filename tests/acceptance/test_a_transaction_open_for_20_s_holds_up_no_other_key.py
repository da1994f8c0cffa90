"""An uncommitted event sits; those of other keys, even of its shard, pass it by; then it arrives itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.truth import Truth, keys_of_one_shard
from tests.support.waiting import until

pytestmark = pytest.mark.soak

SITS_S = 20.0


def test_others_pass_an_event_whose_transaction_is_open(
    config: Config, environment: dict[str, str], tmp_path: Path, conn: psycopg.Connection[Any]
) -> None:
    truth = Truth(config, make_project(tmp_path / "small"))
    relay = Command("relay", env=environment, cwd=truth.project.root)
    sitting, *neighbours = keys_of_one_shard(conn, 5)
    conn.rollback()
    truth.append(conn, sitting)
    begun = time.monotonic()
    latencies = []
    with psycopg.connect(config.database_url, autocommit=True) as watch:
        while time.monotonic() - begun < SITS_S:
            truth.commit(*neighbours, "of another shard")
            committed = time.monotonic()
            until(lambda: watch.execute("select count(*) from stream.outbox").fetchone() == (0,), 10)
            latencies.append(time.monotonic() - committed)
    assert max(latencies[1:]) < 2, "the first has the producer made"
    conn.commit()
    truth.wait_published(5)
    assert relay.stop() == 0
    assert truth.check() == 0
