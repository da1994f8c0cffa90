"""Two relays; one dies with events on the topic whose rows are still in the table."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.truth import Truth, Writers


@pytest.mark.parametrize("nth", [1, 30], ids=["partitions never written to", "in the middle"])
def test_the_other_goes_on_and_publishes_again_what_it_finds(
    config: Config, environment: dict[str, str], tmp_path: Path, nth: int
) -> None:
    truth = Truth(config, make_project(tmp_path / "small"))
    armed = {**environment, "STREAM_FAILPOINTS": f"relay.acknowledged=kill@{nth}"}
    with Writers(truth) as writers:
        doomed = Command("relay", env=armed, cwd=truth.project.root)
        other = Command("relay", env=environment, cwd=truth.project.root)
        assert doomed.wait() == -signal.SIGKILL
        other.says('"owned": 64')
        writers.wait_transactions(100)
    truth.wait_published()
    assert other.stop() == 0
    assert truth.check() > 0, "what the dead one had published came again, under the same id"
