"""Two relays; one is stopped (SIGSTOP) with rows in flight, loses its shards to the other, and wakes up."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.truth import Truth, Writers
from tests.support.waiting import until


@pytest.mark.parametrize(
    "where",
    ["relay.acknowledged=stop", "relay.produced=stop@30"],
    ids=["at the first acknowledgement of partitions never written to", "in the middle"],
)
def test_the_other_takes_over_and_the_frozen_one_can_only_repeat(
    config: Config, environment: dict[str, str], tmp_path: Path, where: str
) -> None:
    truth = Truth(config, make_project(tmp_path / "small"))
    armed = {**environment, "STREAM_FAILPOINTS": where}
    with Writers(truth) as writers:
        frozen = Command("relay", env=armed, cwd=truth.project.root)
        other = Command("relay", env=environment, cwd=truth.project.root)
        process = psutil.Process(frozen.pid)
        until(lambda: process.status() == psutil.STATUS_STOPPED, 20, "it freezes with rows in memory")
        other.says('"owned": 64', seconds=15)
        writers.wait_transactions(100)
        frozen.send(signal.SIGCONT)
        frozen.says("relay.database_lost")
        writers.wait_transactions(100)
    truth.wait_published()
    assert [relay.stop() for relay in (frozen, other)] == [0, 0]
    assert truth.check() > 0
