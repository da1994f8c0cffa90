from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg

from tests.support.processes import STREAM
from tests.support.stacks import checkout


def test_stack_env_is_safe_for_eval(tmp_path: Path) -> None:
    with checkout(tmp_path / "shop") as shop:
        before = shop.run("env")
        assert before.wait() == 3
        assert before.stdout == ""
        assert "-> stream stack up" in before.stderr

        addresses = shop.up()
        lines = shop.run("env").stdout.splitlines()
        assert [line.partition("=")[0] for line in lines] == [
            "export KAFKA_BOOTSTRAP_SERVERS",
            "export DATABASE_URL",
        ]

        script = (
            f'eval "$({STREAM} stack env)" && printf "%s\\n%s" "$KAFKA_BOOTSTRAP_SERVERS" "$DATABASE_URL"'
        )
        shell = subprocess.run(
            ["sh", "-c", script], cwd=shop.folder, capture_output=True, text=True, check=True
        )
        assert shell.stdout.split("\n") == [addresses.bootstrap_servers, addresses.database_url]
        psycopg.connect(shell.stdout.split("\n")[1]).close()
