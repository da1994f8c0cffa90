from __future__ import annotations

import time
from pathlib import Path

import pytest

from stream import stack
from tests.support.processes import Command
from tests.support.stacks import checkout
from tests.support.waiting import until

pytestmark = pytest.mark.soak


def test_stack_up_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    """Killed a little later each time: while the folder is made, the database, before and after both are ready."""
    with checkout(tmp_path / "shop") as shop:
        for hundredths in (20, 35, 50, 80, 120, 200):
            command = shop.begin("up")
            kill_at(command, time.monotonic() + hundredths / 100)
        addresses = shop.up()
        pids = stack.processes(shop.data)
        assert shop.up() == addresses
        assert stack.processes(shop.data) == pids


def kill_at(command: Command, moment: float) -> None:
    until(lambda: time.monotonic() >= moment)
    command.kill()


def test_stack_up_of_several_at_once_starts_one(tmp_path: Path) -> None:
    with checkout(tmp_path / "shop") as shop:
        commands = [shop.begin("up") for _ in range(3)]
        assert [command.wait(90) for command in commands] == [0, 0, 0]
        assert shop.run("status").wait() == 0
        assert any("waiting for another command" in command.stderr for command in commands)
