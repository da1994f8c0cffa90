"""SIGKILL at each failpoint of the relay in turn, under load; a supervisor starts it again each time."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import psycopg

from stream.config import Config
from stream.failpoints import NAMES
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.topics import create_topic
from tests.support.truth import Truth, Writers, append_bytes

STEPS = sorted(name for name in NAMES if name.startswith("relay."))
TOO_LARGE = random.Random(1).randbytes(30_000)


def test_every_committed_event_arrives_in_its_keys_order(
    config: Config, environment: dict[str, str], tmp_path: Path
) -> None:
    create_topic(config, "things", 4, **{"max.message.bytes": "20000"})
    truth = Truth(config, make_project(tmp_path / "small"))
    with Writers(truth) as writers, psycopg.connect(config.database_url, autocommit=True) as conn:
        for n, step in enumerate(STEPS):
            # What the rarer steps need: an event that is due, and one that the broker refuses, with one behind it.
            with conn.transaction():
                truth.append(conn, f"delayed {n}", delay=0)
                for value in (TOO_LARGE, b"1"):
                    append_bytes(conn, "things", f"refused {n}".encode(), value)
            armed = {**environment, "STREAM_FAILPOINTS": f"{step}=kill"}
            relay = Command("relay", env=armed, cwd=truth.project.root)
            assert relay.wait(20) == -signal.SIGKILL, relay.stderr
            writers.wait_transactions(20)
        relay = Command("relay", env=environment, cwd=truth.project.root)
        writers.wait_transactions(20)
    truth.wait_published()
    assert relay.stop() == 0
    truth.check()
    with psycopg.connect(config.database_url) as conn:
        rejected = conn.execute("select key, reason from stream.outbox_rejected order by key, id").fetchall()
    assert rejected == [
        (f"refused {n}".encode(), reason) for n in range(6) for reason in ("refused", "behind")
    ]
