"""SIGKILL of the broker under load, and a new start on the same data."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from stream import stack
from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.truth import Truth, Writers

pytestmark = pytest.mark.long


def test_nothing_is_lost_and_each_keys_order_is_kept(
    config: Config, environment: dict[str, str], tmp_path: Path, stack_data: Path
) -> None:
    data = stack_data / ".stream"
    truth = Truth(config, make_project(tmp_path / "small"))
    relay = Command("relay", env=environment, cwd=truth.project.root)
    relay.says("relay.shards")
    with Writers(truth) as writers:
        writers.wait_transactions(100)
        os.kill(stack.processes(data)["kafka"], signal.SIGKILL)
        try:
            writers.wait_transactions(100)
            relay.says("relay.topic_sick")
        finally:
            stack.up(data)
        writers.wait_transactions(100)
        relay.says("relay.topic_well")
    truth.wait_published()
    assert relay.running, "it was never started again"
    assert relay.stop() == 0
    truth.check()
