"""`stream init` writes a project in which an order placed by the application gets its receipt, with no file changed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg

from tests.support.processes import Command, run


def test_a_new_project_runs(tmp_path: Path, environment: dict[str, str]) -> None:
    shop = tmp_path / "myshop"
    made = run("init", str(shop), env=environment, cwd=tmp_path)
    assert made.wait() == 0, made.stderr
    assert sorted(made.stdout.split()) == sorted(str(path) for path in shop.rglob("*") if path.is_file())
    assert "-> python place_order.py 1001" in made.stderr
    assert (shop / "README.md").read_text().startswith("# myshop\n")

    stream(shop, environment, "migrate")
    python(shop, environment, "place_order.py", "1001")
    stream(shop, environment, "relay", "--once")
    stream(shop, environment, "consume", "--group", "receipts", "--exit-at-end")

    with psycopg.connect(environment["DATABASE_URL"]) as conn:
        assert conn.execute("select order_id, customer, total::text from receipt").fetchall() == [
            ("1001", "17850", "9.00")
        ]
    shown = json.loads(stream(shop, environment, "order", "show", "1001", "--format", "json").stdout)
    [event] = shown["events"]
    assert (event["type"], event["topic"], event["offset"]) == ("OrderPlaced", "orders", 0)
    [group] = event["groups"]
    assert (group["group"], group["outcome"], group["attempts"]) == ("receipts", "done", 1)

    stream(shop, environment, "schema", "check")
    python(shop, environment, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert ".stream/" in (shop / ".gitignore").read_text().split()


def stream(shop: Path, environment: dict[str, str], *words: str) -> Command:
    command = run(*words, env=environment, cwd=shop)
    assert command.wait() == 0, command.stderr
    return command


def python(shop: Path, environment: dict[str, str], *words: str) -> None:
    subprocess.run([sys.executable, *words], cwd=shop, env=environment, check=True, timeout=60)
