"""Rows 1, 2 and 3 of a key in one batch, 1 too large for its topic; mended by the limit, then `stream outbox retry`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import psycopg

from stream.config import Config
from tests.support.processes import Command, run
from tests.support.small import make_project
from tests.support.topics import create_topic, set_limit
from tests.support.truth import Truth
from tests.support.waiting import until

TOO_LARGE = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=100_000))


def test_the_others_are_published_and_a_retry_publishes_all_three_in_order(
    config: Config, environment: dict[str, str], tmp_path: Path, conn: psycopg.Connection[Any]
) -> None:
    create_topic(config, "things", 4, **{"max.message.bytes": "20000"})
    truth = Truth(config, make_project(tmp_path / "small"))
    relay = Command("relay", env=environment, cwd=truth.project.root)
    truth.commit("warm")
    truth.wait_published()
    truth.append(conn, "key", headers={"padding": TOO_LARGE})
    for _ in range(2):
        truth.append(conn, "key")
        truth.append(conn, "another")
    conn.commit()
    truth.wait_published()
    until(lambda: reasons(conn) == ["refused", "behind", "behind"], 10)
    relay.says("relay.rejected")
    truth.commit("another", "key")
    truth.wait_published()
    assert reasons(conn) == ["refused", "behind", "behind", "behind"]

    shown = run("outbox", "rejected", env=environment, cwd=truth.project.root)
    assert "-> stream outbox retry --topic things --key key" in shown.stderr
    set_limit(config, "things", 200_000)
    retried = run(
        "outbox", "retry", "--topic", "things", "--key", "key", env=environment, cwd=truth.project.root
    )
    assert retried.wait() == 0
    truth.wait_published()
    assert reasons(conn) == []
    assert relay.stop() == 0
    assert truth.check() == 0


def reasons(conn: psycopg.Connection[Any]) -> list[str]:
    rows = conn.execute("select reason from stream.outbox_rejected order by id").fetchall()
    conn.rollback()
    return [reason for (reason,) in rows]
