"""Spawned `stream` commands: started, waited for, killed; none survives its test."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.support.waiting import until

STREAM = str(Path(sys.executable).with_name("stream"))
_started: list[Command] = []


class Command:
    """One running `stream` command; its stdout and stderr are read all the time."""

    def __init__(self, *arguments: str, env: Mapping[str, str], cwd: Path) -> None:
        self.arguments = arguments
        self._process = subprocess.Popen(
            [STREAM, *arguments],
            env={**env, "PYTHONFAULTHANDLER": "1"},  # see end_all
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._readers = [
            threading.Thread(target=self._read, args=(name, getattr(self._process, name)), daemon=True)
            for name in self._lines
        ]
        for reader in self._readers:
            reader.start()
        _started.append(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdout(self) -> str:
        return "".join(self._lines["stdout"])

    @property
    def stderr(self) -> str:
        return "".join(self._lines["stderr"])

    @property
    def error(self) -> str:
        """The line that says why it ended, without the next command to type."""
        return next(line for line in reversed(self.stderr.splitlines()) if line.startswith("Error: "))

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def says(self, text: str, seconds: float = 30) -> None:
        """Wait until the text stands on stderr."""
        until(
            lambda: text in self.stderr or not self.running, seconds, lambda: f"{text!r} in:\n{self.stderr}"
        )
        assert text in self.stderr, f"{self.arguments} ended with {self._process.returncode}:\n{self.stderr}"

    def wait(self, seconds: float = 60) -> int:
        """Wait for the end; returns the exit code (negative: the signal)."""
        code = self._process.wait(seconds)
        for reader in self._readers:
            reader.join(10)
        return code

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def stop(self, seconds: float = 30) -> int:
        """SIGTERM, and wait for the clean end."""
        self._process.terminate()
        return self.wait(seconds)

    def _read(self, name: str, pipe: object) -> None:
        for line in pipe:  # type: ignore[attr-defined]  # a text pipe of Popen
            self._lines[name].append(line)
        pipe.close()  # type: ignore[attr-defined]


def run(*arguments: str, env: Mapping[str, str], cwd: Path, seconds: float = 60) -> Command:
    """Run a command to its end."""
    command = Command(*arguments, env=env, cwd=cwd)
    command.wait(seconds)
    return command


def end_all() -> list[str]:
    """Leave none running; returns, of each that was, its last lines and where its threads stood."""
    left = [command for command in _started if command.running]
    for command in left:
        command.send(signal.SIGCONT)
        command.send(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(10)
    for command in _started:
        if command.running:
            command.kill()
        command.wait()
    _started.clear()
    return [f"{' '.join(command.arguments)}:\n{command.stderr[-20_000:]}" for command in left]
