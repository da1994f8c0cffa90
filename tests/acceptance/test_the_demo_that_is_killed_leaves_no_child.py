"""SIGKILL of `stream demo` itself: relay and groups end too, and the next demo removes what it left."""

from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.support.processes import Command, run
from tests.support.waiting import until

pytestmark = pytest.mark.soak

ROOT = Path(__file__).resolve().parents[2]


def demo_databases(conn: psycopg.Connection[Any]) -> list[str]:
    conn.rollback()
    rows = conn.execute("select datname from pg_database where datname like 'stream_demo_%'")
    return [name for (name,) in rows]


def test_the_demo_that_is_killed_leaves_no_child(
    environment: dict[str, str], conn: psycopg.Connection[Any]
) -> None:
    demo = Command("demo", "--orders", "5000", env=environment, cwd=ROOT)
    children = psutil.Process(demo.pid).children
    until(lambda: len(children()) == 4, 30, lambda: demo.stderr)
    started = children()
    demo.kill()

    until(lambda: not any(child.is_running() for child in started), 40)
    [left] = demo_databases(conn)

    assert run("demo", "--orders", "1", env=environment, cwd=ROOT).wait() == 0
    assert left not in demo_databases(conn)
