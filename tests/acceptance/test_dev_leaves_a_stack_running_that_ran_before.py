"""`stream dev` uses the project's running stack, and does not stop what it did not start."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stream import stack
from tests.support.processes import Command
from tests.support.shops import new_shop

pytestmark = pytest.mark.long


def test_dev_leaves_a_stack_running_that_ran_before(
    tmp_path: Path, stack_data: Path, environment: dict[str, str]
) -> None:
    shop = new_shop(tmp_path / "myshop")
    (shop / stack.FOLDER).symlink_to(stack_data / stack.FOLDER)  # the stack of this test run
    del environment["KAFKA_BOOTSTRAP_SERVERS"]
    dev = Command("dev", env=environment, cwd=shop)
    dev.says("relay    | relaying", 30)
    dev.send(signal.SIGINT)
    assert dev.wait(30) == 0, dev.stderr
    assert "using this project's stack" in dev.stderr
    assert "Kafka and PostgreSQL ran before and go on" in dev.stderr
    assert stack.running(shop) is not None
