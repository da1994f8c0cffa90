from __future__ import annotations

import json
from pathlib import Path

import psutil
import psycopg
import pytest

from stream import stack
from tests.support.stacks import NO_NETWORK, checkout

pytestmark = pytest.mark.long


def test_stack_up_returns_when_ready_and_down_leaves_no_process(tmp_path: Path) -> None:
    """Also in a folder whose name would trip a shell, a class path or a properties file."""
    with checkout(tmp_path / "Müllers shop, 'new': $HOME") as shop:
        first = shop.up()
        with psycopg.connect(first.database_url) as connection:
            connection.execute("create table kept (value int)")
            connection.execute("insert into kept values (7)")
        pids = stack.processes(shop.data)
        assert set(pids) == {"kafka", "postgres"}

        status = shop.run("status", "--format", "json")
        assert status.wait() == 0
        assert [(one["name"], one["state"]) for one in json.loads(status.stdout)] == [
            ("Kafka", "up"),
            ("PostgreSQL", "up"),
        ]

        assert shop.run("down").wait() == 0
        assert not any(psutil.pid_exists(pid) and alive(pid) for pid in pids.values())
        assert shop.run("status").wait() == 3
        assert shop.run("down").wait() == 0, "a second time is no error"

    with checkout(tmp_path / "again", **NO_NETWORK) as offline:
        command = offline.run("up", seconds=60)
        assert command.wait() == 0, command.stderr
        assert "downloading" not in command.stderr


def alive(pid: int) -> bool:
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
