"""Ctrl-C in the middle of `stream demo`."""

import signal
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.support.processes import Command
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_stops_everything_on_ctrl_c(
    environment: dict[str, str], conn: psycopg.Connection[Any]
) -> None:
    demo = Command("demo", "--orders", "5000", env=environment, cwd=ROOT)
    children = psutil.Process(demo.pid).children
    until(lambda: len(children()) == 4, 30, lambda: demo.stderr)
    demo.says("orders placed")
    started = children()

    demo.send(signal.SIGINT)

    assert demo.wait(60) == 0, demo.stderr
    assert "stopping relay, groups and servers" in demo.stderr
    assert "Traceback" not in demo.stderr
    assert [child for child in started if child.is_running()] == []
    names = [name for (name,) in conn.execute("select datname from pg_database")]
    assert not [name for name in names if name.startswith("stream_demo_")]
