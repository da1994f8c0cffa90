"""An immediate shutdown under load: every session ends as in a crash, and PostgreSQL recovers from its log."""

from __future__ import annotations

from pathlib import Path

from stream import stack
from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.truth import Truth, Writers


def test_nothing_is_lost_and_each_keys_order_is_kept(
    config: Config, environment: dict[str, str], tmp_path: Path, stack_data: Path
) -> None:
    truth = Truth(config, make_project(tmp_path / "small"))
    relay = Command("relay", env=environment, cwd=truth.project.root)
    relay.says("relay.shards")
    with Writers(truth) as writers:
        writers.wait_transactions(100)
        stack.restart_postgres(stack_data / ".stream", "immediate")
        relay.says("relay.database_lost")
        writers.wait_transactions(100)
    truth.wait_published()
    assert relay.running, "it was never started again"
    assert relay.stop() == 0
    truth.check()
