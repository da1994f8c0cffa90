"""Three relays; two die with events on the topic whose rows are still in the table."""

from __future__ import annotations

import signal
from pathlib import Path

from stream.config import Config
from tests.support.processes import Command
from tests.support.relays import wait_owns_all
from tests.support.small import make_project
from tests.support.truth import Truth, Writers


def test_another_goes_on_and_publishes_again_what_it_finds(
    config: Config, environment: dict[str, str], tmp_path: Path
) -> None:
    """One dies at the first acknowledgement of partitions never written to, one in the middle."""
    truth = Truth(config, make_project(tmp_path / "small"))
    with Writers(truth) as writers:
        survivor = Command("relay", env=environment, cwd=truth.project.root)
        doomed = [
            Command("relay", env={**environment, "STREAM_FAILPOINTS": point}, cwd=truth.project.root)
            for point in ("relay.acknowledged=kill", "relay.acknowledged=kill@30")
        ]
        assert [relay.wait() for relay in doomed] == [-signal.SIGKILL] * 2
        wait_owns_all(survivor)
        writers.wait_transactions(100)
    truth.wait_published()
    assert survivor.stop() == 0
    assert truth.check() >= 2, "what the dead ones had published came again, under the same ids"
