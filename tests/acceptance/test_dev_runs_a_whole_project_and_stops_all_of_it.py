"""`stream dev` in a new project: servers, tables, topic, relay and group start, what dies starts again, and Ctrl-C
ends all of it, the servers too."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from stream import stack
from tests.support.processes import STREAM, Command
from tests.support.shops import children, is_gone, new_shop, place, receipts, without_addresses
from tests.support.waiting import until

pytestmark = pytest.mark.long


def test_dev_runs_a_whole_project_and_stops_all_of_it(tmp_path: Path, environment: dict[str, str]) -> None:
    shop = new_shop(tmp_path / "myshop")
    without = without_addresses(environment)
    try:
        dev = Command("dev", env=without, cwd=shop)
        dev.says("receipts | consuming: receipts", 60)
        addresses = stack.running(shop)
        assert addresses is not None
        env = {**without, "DATABASE_URL": addresses.database_url}
        place(shop, "1001", env)
        until(lambda: receipts(addresses.database_url) == ["1001"], what=lambda: dev.stderr)

        parts = children(dev)
        assert set(parts) == {"relay", "consume receipts"}
        parts["relay"].send_signal(signal.SIGKILL)
        dev.says("relay    | was ended by SIGKILL")
        place(shop, "1002", env)
        until(lambda: receipts(addresses.database_url) == ["1001", "1002"], what=lambda: dev.stderr)
        assert dev.stderr.count("relay    | relaying") == 2

        left = [*parts.values(), *children(dev).values()]
        dev.send(signal.SIGINT)
        assert dev.wait(30) == 0, dev.stderr
        assert all(is_gone(process) for process in left)
        assert "receipts | receipts: 2 done" in dev.stderr
        assert "Kafka and PostgreSQL have stopped; their data is kept" in dev.stderr
        assert stack.processes(shop / stack.FOLDER) == {}

        exported = {**env, "KAFKA_BOOTSTRAP_SERVERS": addresses.bootstrap_servers}
        host, _, port = addresses.bootstrap_servers.partition(":")
        with socket.create_server((host, int(port))):  # somebody else, by now
            dev = Command("dev", env=exported, cwd=shop)  # in the terminal that had `stream stack env`
            dev.says("receipts | consuming: receipts", 60)
        moved = stack.running(shop)
        assert moved is not None and moved.bootstrap_servers != addresses.bootstrap_servers
        dev.send(signal.SIGINT)
        assert dev.wait(30) == 0, dev.stderr
        assert stack.processes(shop / stack.FOLDER) == {}
    finally:
        subprocess.run([STREAM, "stack", "down", "--delete"], cwd=shop, env=without, check=True, timeout=60)
