"""Dev: the parts of a project as children of one foreground command. They are started again when they die,
and none outlives the command, whatever ends it (see tied.py)."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from stream import processor

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
STEADY_S = 30.0  # who lived so long starts anew with short pauses
STOP_S = processor.STOP_S + 1  # a child says itself what it could not finish
LOOK_EVERY_S = 0.1

Write = Callable[[str, str], None]


@dataclass
class Child:
    """One command; `process` is None while it waits to be started again at `start_at` (monotonic seconds)."""

    name: str
    arguments: Sequence[str]
    process: subprocess.Popen[str] | None = None
    start_at: float = 0.0
    started_at: float = 0.0
    deaths: int = 0


class Supervisor:
    """Keeps `stream` commands running. Used by the main thread; `kill` may be called from a signal handler.

    `write(name, line)` gets every line that a child writes, from several threads, and what is said about it.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        write: Write,
    ) -> None:
        self._children = [Child(name, arguments) for name, arguments in commands.items()]
        self._cwd = cwd
        self._environment = {**environment, "PYTHONUNBUFFERED": "1"}
        self._write = write

    def run(self, stopping: threading.Event) -> None:
        """Until `stopping` is set; then stops them all."""
        while not stopping.is_set():
            self.look(time.monotonic())
            stopping.wait(LOOK_EVERY_S)
        self.stop()

    def look(self, now: float) -> None:
        """Start who is due, and note who died."""
        for child in self._children:
            if child.process is None:
                if now >= child.start_at:
                    self._start(child, now)
            elif child.process.poll() is not None:
                self._mourn(child, child.process.returncode, now)

    def stop(self) -> None:
        """SIGTERM to all at once, SIGKILL to those that do not end within `STOP_S`."""
        deadline = time.monotonic() + STOP_S
        for child in self._running():
            _process(child).terminate()
        for child in self._running():
            try:
                _process(child).wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                self._write(
                    child.name, f"did not end within {STOP_S:.0f} s: killed; what it began is done again"
                )
                _process(child).kill()
            self._bury(child)

    def kill(self) -> None:
        """SIGKILL to all, without waiting."""
        for child in self._running():
            _process(child).kill()

    @property
    def running(self) -> list[str]:
        """The names of those that run."""
        return [child.name for child in self._running()]

    def _running(self) -> list[Child]:
        return [child for child in self._children if child.process is not None]

    def _start(self, child: Child, now: float) -> None:
        child.process = subprocess.Popen(
            # -P: what lies in the project's folder hides no standard module.
            [sys.executable, "-P", "-m", "stream.tied", "--log-format", "text", *child.arguments],
            cwd=self._cwd,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the parent, which stops them in order
        )
        child.started_at = now
        output = child.process.stdout
        assert output is not None  # it is a pipe
        threading.Thread(target=self._copy, args=(child.name, output), daemon=True).start()

    def _mourn(self, child: Child, code: int, now: float) -> None:
        lived = now - child.started_at
        child.deaths = 1 if lived >= STEADY_S else child.deaths + 1
        pause = pause_before_start(child.deaths)
        self._bury(child)
        child.start_at = now + pause
        self._write(child.name, f"{ending(code)} after {lived:.0f} s; it starts again in {pause:.0f} s")

    def _bury(self, child: Child) -> None:
        process = _process(child)
        process.wait()
        assert process.stdin is not None  # it is a pipe
        process.stdin.close()
        child.process = None

    def _copy(self, name: str, output: IO[str]) -> None:
        with output:
            for line in output:
                self._write(name, line.rstrip("\n"))


def pause_before_start(deaths: int) -> float:
    """Seconds, by how often in a row the child died soon: 1, 2, 4 ... 30."""
    return min(FIRST_PAUSE_S * 2.0 ** min(deaths - 1, 10), LONGEST_PAUSE_S)


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _process(child: Child) -> subprocess.Popen[str]:
    assert child.process is not None
    return child.process
