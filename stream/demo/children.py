"""The demo's child processes: relay and groups, each a `stream` command as a user would start it.

Each ends when the demo does, however that happens (see stream/tied.py).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from stream.processor import STOP_S

STOP_TIMEOUT_S = STOP_S + 1


class Children:
    """Starts, kills and stops commands. Each writes its log to a file of its own."""

    def __init__(self, project: Path, logs: Path, environment: Mapping[str, str]) -> None:
        """`environment` is added to this process's own."""
        self._project = project
        self.logs = logs
        self._environment = {**os.environ, **environment}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        shutil.rmtree(logs, ignore_errors=True)  # of the run before
        logs.mkdir(parents=True)

    def start(self, name: str, *arguments: str) -> None:
        self._close(name)
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "stream.tied", "--log-format", "json", *arguments],
                cwd=self._project,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which stops them one by one
            )

    def kill(self, name: str) -> int:
        """SIGKILL, at this moment; returns the process id. Does not wait."""
        process = self._running[name]
        process.send_signal(signal.SIGKILL)
        return process.pid

    def ended(self) -> dict[str, int]:
        """Exit codes of those that do not run any more."""
        codes = {name: process.poll() for name, process in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def output(self, *arguments: str) -> tuple[int, str]:
        """Run a command to its end; returns exit code and what it printed."""
        done = subprocess.run(
            [sys.executable, "-c", "from stream.cli import main; main()", *arguments],
            cwd=self._project,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.returncode, done.stdout

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def tail(self, name: str, lines: int = 20) -> str:
        """The last lines of its log."""
        return "\n".join(self.log(name).read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all: SIGTERM to everybody at once, SIGKILL for who does not end."""
        for process in self._running.values():
            process.terminate()
        for name, process in self._running.items():
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
            self._close(name)

    def _close(self, name: str) -> None:
        """What is left of one that has ended, or was killed."""
        process = self._running.get(name)
        if process is not None:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
