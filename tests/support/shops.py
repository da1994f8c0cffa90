"""New projects, as `stream init` makes them, and their processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import psycopg

from stream.cli.init import template
from tests.support.processes import Command


def new_shop(root: Path) -> Path:
    for path, content in template(root.name):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


def without_addresses(environment: Mapping[str, str]) -> dict[str, str]:
    """For a command that is to use, or start, the project's own stack."""
    addresses = ("KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL")
    return {name: value for name, value in environment.items() if name not in addresses}


def place(shop: Path, order_id: str, env: Mapping[str, str]) -> None:
    """Place an order as the project's own script does."""
    subprocess.run([sys.executable, "place_order.py", order_id], cwd=shop, env=env, check=True, timeout=60)


def receipts(database_url: str) -> list[str]:
    with psycopg.connect(database_url) as conn:
        return [id for (id,) in conn.execute("select order_id from receipt order by order_id")]


def children(command: Command) -> dict[str, psutil.Process]:
    """The command's child processes by what they run: "relay", "consume receipts"."""
    found = {}
    for child in psutil.Process(command.pid).children():
        words = child.cmdline()
        if "stream.tied" in words:
            found[" ".join(word for word in words[words.index("text") + 1 :] if word != "--group")] = child
    return found


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
