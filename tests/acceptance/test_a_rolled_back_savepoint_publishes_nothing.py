"""What was appended inside it is gone, what stands around it arrives, and its keys' locks are free again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.truth import Truth


def test_events_around_a_rolled_back_savepoint_arrive_without_those_inside(
    config: Config, environment: dict[str, str], tmp_path: Path, conn: psycopg.Connection[Any]
) -> None:
    truth = Truth(config, make_project(tmp_path / "small"))
    relay = Command("relay", env=environment, cwd=truth.project.root)
    truth.append(conn, "key")
    with conn.transaction() as savepoint:
        truth.append(conn, "key")
        truth.append(conn, "inside only")
        raise psycopg.Rollback(savepoint)
    truth.commit("inside only")  # another transaction, while the first is open
    truth.append(conn, "key")
    conn.commit()
    truth.wait_published()
    assert relay.stop() == 0
    assert {key: len(ids) for key, ids in truth.expected().items()} == {"key": 2, "inside only": 1}
    assert truth.check() == 0
