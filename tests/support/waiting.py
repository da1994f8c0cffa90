"""Waiting for a condition, the only way a test may let time pass."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float = 30, what: Callable[[], str] | str = "") -> None:
    """Return once the condition holds; fail, saying what was waited for, when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what or condition}")
        time.sleep(0.02)
