"""Children of `stream dev`: started, started again, never left behind."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from stream.dev import FIRST_PAUSE_S, STEADY_S, Supervisor, ending, pause_before_start
from tests.support.waiting import until


class Lines:
    """What was written, by name."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str]] = []

    def __call__(self, name: str, line: str) -> None:
        self.all.append((name, line))

    def count(self, text: str) -> int:
        return sum(text in line for _, line in self.all)


def supervisor(lines: Lines, *arguments: str) -> Supervisor:
    """Of one child, whose command ends by itself."""
    return Supervisor({"child": arguments}, cwd=Path(), environment=os.environ, write=lines)


def test_what_a_child_writes_comes_line_by_line_under_its_name() -> None:
    lines = Lines()
    child = supervisor(lines, "nonsense")
    child.look(0)
    until(lambda: ("child", "Error: No such command 'nonsense'.") in lines.all)
    child.stop()


def test_a_child_that_dies_is_started_again_after_a_pause_that_grows() -> None:
    lines = Lines()
    child = supervisor(lines, "nonsense")
    now = 100.0
    for times, pause in enumerate((1.0, 2.0, 4.0), 1):
        child.look(now)  # starts it
        until(lambda now=now, times=times: child.look(now) or lines.count("ended with exit code 2") == times)
        assert lines.all[-1] == (
            "child",
            f"ended with exit code 2 after 0 s; it starts again in {pause:.0f} s",
        )
        child.look(now + pause - 0.01)  # too early
        assert child.running == []
        now += pause


def test_a_child_that_lived_for_long_starts_with_a_short_pause_again() -> None:
    lines = Lines()
    child = supervisor(lines, "nonsense")
    child.look(0)
    until(lambda: child.look(0) or lines.count("again in 1 s") == 1)
    child.look(FIRST_PAUSE_S)
    until(lambda: lines.count("No such command") == 2)
    until(lambda: child.look(FIRST_PAUSE_S + STEADY_S) or lines.count("again in 1 s") == 2)


def test_the_stop_of_children_that_ended_already_is_no_wait() -> None:
    lines = Lines()
    child = supervisor(lines, "--version")
    stopping = threading.Event()
    runner = threading.Thread(target=child.run, args=(stopping,))
    runner.start()
    until(lambda: lines.count("version") >= 1)
    stopping.set()
    runner.join(10)
    assert not runner.is_alive()


@pytest.mark.parametrize(("deaths", "pause"), [(1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (10_000, 30)])
def test_the_pause_doubles_up_to_half_a_minute(deaths: int, pause: float) -> None:
    assert pause_before_start(deaths) == pause


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "ended with exit code 0"), (-9, "was ended by SIGKILL"), (-63, "was ended by signal 63")],
)
def test_the_ending_is_told_in_words(code: int, words: str) -> None:
    assert ending(code) == words
