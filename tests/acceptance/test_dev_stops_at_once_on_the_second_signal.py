"""The first Ctrl-C waits for a part that does not end; the second does not, and leaves no process either."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from stream import stack
from tests.support.processes import STREAM, Command
from tests.support.shops import children, is_gone, new_shop, without_addresses
from tests.support.waiting import until


def test_dev_stops_at_once_on_the_second_signal(tmp_path: Path, environment: dict[str, str]) -> None:
    shop = new_shop(tmp_path / "myshop")
    env = without_addresses(environment)
    try:
        dev = Command("dev", env=env, cwd=shop)
        dev.says("receipts | consuming: receipts", 60)
        parts = children(dev)
        parts["consume receipts"].send_signal(signal.SIGSTOP)  # hears nothing, and ends by SIGKILL alone

        dev.send(signal.SIGINT)
        dev.says("again stops at once")
        until(lambda: is_gone(parts["relay"]), what=lambda: dev.stderr)
        assert dev.running
        begun = time.monotonic()
        dev.send(signal.SIGINT)
        assert dev.wait() == 130
        assert time.monotonic() - begun < 2
        until(lambda: all(is_gone(part) for part in parts.values()), 5)
        until(lambda: stack.processes(shop / stack.FOLDER) == {}, 15)
    finally:
        subprocess.run([STREAM, "stack", "down", "--delete"], cwd=shop, env=env, check=True, timeout=60)
