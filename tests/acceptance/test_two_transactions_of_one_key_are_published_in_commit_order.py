"""The second append of a key waits until the first transaction has ended; nothing else does."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg

from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.truth import Truth
from tests.support.waiting import until

WAITS = """
select count(*) from pg_stat_activity
where application_name = 'second' and datname = current_database() and wait_event = 'advisory'
"""


def test_the_second_append_waits_and_the_topic_has_commit_order(
    config: Config, environment: dict[str, str], tmp_path: Path, conn: psycopg.Connection[Any]
) -> None:
    truth = Truth(config, make_project(tmp_path / "small"))
    relay = Command("relay", env=environment, cwd=truth.project.root)
    truth.append(conn, "key")

    def second() -> None:
        with psycopg.connect(config.database_url, application_name="second") as own:
            truth.append(own, "key")

    thread = threading.Thread(target=second)
    thread.start()
    with psycopg.connect(config.database_url, autocommit=True) as watch:
        until(lambda: watch.execute(WAITS).fetchone() == (1,), 10, "the second append waits")
        truth.commit("another key", "a third")
        until(lambda: watch.execute("select count(*) from stream.outbox").fetchone() == (0,), 10)
        assert watch.execute(WAITS).fetchone() == (1,)
    conn.commit()
    thread.join(10)
    truth.wait_published()
    assert relay.stop() == 0
    assert truth.check() == 0
