"""SIGKILL of `stream dev`: relay and group stop by themselves."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.processes import Command
from tests.support.shops import children, is_gone, new_shop
from tests.support.waiting import until


def test_dev_that_is_killed_leaves_no_child(tmp_path: Path, environment: dict[str, str]) -> None:
    shop = new_shop(tmp_path / "myshop")
    dev = Command("dev", env=environment, cwd=shop)
    dev.says("partitions.assigned", 30)
    parts = children(dev)
    assert set(parts) == {"relay", "consume receipts"}
    dev.send(signal.SIGKILL)
    dev.wait()
    until(lambda: all(is_gone(part) for part in parts.values()), 15, lambda: f"{parts}")
