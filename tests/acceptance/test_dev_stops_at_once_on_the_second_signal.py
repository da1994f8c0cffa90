"""The first Ctrl-C waits for a handler that does not end; the second does not."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.support.processes import Command
from tests.support.shops import children, is_gone, new_shop, place
from tests.support.waiting import until

SLOW = """
import time
from stream import ConsumerGroup

group = ConsumerGroup("slow", topics=["orders"], start="beginning")

@group.on("OrderPlaced")
def wait(event, ctx):
    ctx.log.info("waiting for ever")
    time.sleep(50)
"""


def test_dev_stops_at_once_on_the_second_signal(tmp_path: Path, environment: dict[str, str]) -> None:
    shop = new_shop(tmp_path / "myshop")
    (shop / "consumers" / "receipts.py").write_text(SLOW)
    dev = Command("dev", env=environment, cwd=shop)
    dev.says("slow  | consuming: slow", 30)
    place(shop, "1001", environment)
    dev.says("waiting for ever")
    parts = children(dev)

    dev.send(signal.SIGINT)
    dev.says("again stops at once")
    until(lambda: is_gone(parts["relay"]), what=lambda: dev.stderr)
    assert dev.running
    begun = time.monotonic()
    dev.send(signal.SIGINT)
    assert dev.wait() == 130
    assert time.monotonic() - begun < 2
    until(lambda: all(is_gone(part) for part in parts.values()), 5)
