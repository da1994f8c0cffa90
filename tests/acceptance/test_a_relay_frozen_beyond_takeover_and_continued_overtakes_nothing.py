"""Three relays; two are stopped (SIGSTOP) with rows in flight, lose their shards to the third, and wake up."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from stream.config import Config
from tests.support.processes import Command
from tests.support.relays import wait_owns_all
from tests.support.small import make_project
from tests.support.truth import Truth, Writers
from tests.support.waiting import until

pytestmark = pytest.mark.soak


def test_another_takes_over_and_the_frozen_ones_can_only_repeat(
    config: Config, environment: dict[str, str], tmp_path: Path
) -> None:
    """One freezes at the first acknowledgement of partitions never written to, one in the middle."""
    truth = Truth(config, make_project(tmp_path / "small"))
    with Writers(truth) as writers:
        healthy = Command("relay", env=environment, cwd=truth.project.root)
        frozen = [
            Command("relay", env={**environment, "STREAM_FAILPOINTS": point}, cwd=truth.project.root)
            for point in ("relay.acknowledged=stop", "relay.produced=stop@30")
        ]
        for relay in frozen:
            process = psutil.Process(relay.pid)
            until(
                lambda process=process: process.status() == psutil.STATUS_STOPPED,
                20,
                "frozen with rows in memory",
            )  # type: ignore[misc]
        wait_owns_all(healthy)
        writers.wait_transactions(100)
        for relay in frozen:
            relay.send(signal.SIGCONT)
        for relay in frozen:
            relay.says("relay.database_lost")
        writers.wait_transactions(100)
    truth.wait_published()
    assert [relay.stop() for relay in (*frozen, healthy)] == [0, 0, 0]
    assert truth.check() >= 2
