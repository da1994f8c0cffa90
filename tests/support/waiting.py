"""Waiting for a condition, the only way a test may let time pass."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg


def until(condition: Callable[[], object], seconds: float = 30, what: Callable[[], str] | str = "") -> None:
    """Return once the condition holds; fail, saying what was waited for, when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what or condition}")
        time.sleep(0.02)


def waiting_for_a_lock(url: str) -> int:
    """How many sessions of this database do."""
    with psycopg.connect(url) as conn:
        row = conn.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        ).fetchone()
    return 0 if row is None else int(row[0])
