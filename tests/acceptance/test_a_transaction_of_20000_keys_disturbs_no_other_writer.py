"""It holds 20,000 locks of a table that all share, and commits; others append meanwhile as ever."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.topics import read_all
from tests.support.truth import Truth
from tests.support.waiting import until

pytestmark = pytest.mark.soak

KEYS = 20_000


def test_it_commits_and_the_others_events_pass_it_by(
    config: Config, environment: dict[str, str], tmp_path: Path, conn: psycopg.Connection[Any]
) -> None:
    truth = Truth(config, make_project(tmp_path / "small"))
    relay = Command("relay", env=environment, cwd=truth.project.root)
    truth.commit("warm")
    truth.wait_published()
    for start in range(0, KEYS, 2000):
        many = [{"type": "Happened", "key": f"big-{n}", "data": {"n": n}} for n in range(start, start + 2000)]
        truth.outbox.append_many(conn, many)
    appended, published = [], []
    with psycopg.connect(config.database_url, autocommit=True) as watch:
        for n in range(40):
            begun = time.monotonic()
            truth.commit(f"other-{n}", "always the same")
            appended.append(time.monotonic() - begun)
            until(lambda: watch.execute("select count(*) from stream.outbox").fetchone() == (0,), 10)
            published.append(time.monotonic() - begun)
    conn.commit()
    truth.wait_published(30)
    assert relay.stop() == 0
    arrived = [(message.key() or b"").decode() for message in read_all(config, "things")]
    assert sorted(key for key in arrived if key.startswith("big-")) == sorted(f"big-{n}" for n in range(KEYS))
    assert arrived.count("always the same") == 40
    assert max(appended) < 1
    assert sorted(published)[20] < 0.5
    assert max(published) < 2
