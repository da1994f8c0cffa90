"""Server processes that outlive the command that started them: start, recognise, stop."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stream.errors import StreamError

LOG_LIMIT_BYTES = 20_000_000
ERROR_WORDS = ("FATAL", "PANIC", "ERROR", "error:", "Exception: ", "Error: ")


@dataclass(frozen=True)
class Owner:
    """The user a server runs as, where that is not the caller."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Identity:
    """How a server process is told from all others: its program, and an argument that no other process has.

    A pid alone is not enough: it is used again, and a command killed before it wrote it down leaves none.
    """

    program: str
    argument: str

    def matches(self, command: Sequence[str]) -> bool:
        return bool(command) and os.path.basename(command[0]) == self.program and self.argument in command


def spawn(
    command: Sequence[str],
    *,
    log: Path,
    cwd: Path,
    owner: Owner | None = None,
    variables: Mapping[str, str] | None = None,
) -> int:
    """Start a server in a session of its own, its output appended to `log`; returns its pid.

    A shell in between makes it a child of init, and no child of a caller that lives on. The environment is
    not passed on: JAVA_TOOL_OPTIONS, PGDATA and their like would change what is started.
    """
    with open(log, "ab") as output:
        result = subprocess.run(
            ["/bin/sh", "-c", '"$@" >&2 </dev/null & echo $!', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            check=True,
            start_new_session=True,
            cwd=cwd,
            env={**environment(), **(variables or {})},
            **as_user(owner),
        )
    return int(result.stdout)


def as_user(owner: Owner | None) -> dict[str, Any]:
    """Arguments of `subprocess` that run a command as the owner and nobody else."""
    return {} if owner is None else {"user": owner.uid, "group": owner.gid, "extra_groups": []}


def environment() -> dict[str, str]:
    """What the programs of the stack get of the caller's environment, and the language of their messages."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def find(identity: Identity) -> int | None:
    """The pid of the running server, whoever started it; None where there is none."""
    import psutil

    found = [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE and identity.matches(process.info["cmdline"] or ())
    ]
    # A server's child has its parent's command line for the moment between fork and taking its own title.
    pids = {process.pid for process in found}
    for process in found:
        try:
            if process.ppid() not in pids:
                return int(process.pid)
        except psutil.NoSuchProcess:
            continue
    return None


def is_running(pid: int | None, identity: Identity) -> bool:
    """Whether the process of this pid is there and is the server, not another with the same number."""
    import psutil

    if pid is None:
        return False
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and identity.matches(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def is_in_the_way(pid: int, program: str) -> bool:
    """Whether a process has this number that is not the program: another, or a dead one nobody waited for."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.name() != program or process.status() == psutil.STATUS_ZOMBIE:
            return True
        return not process.cmdline()  # it is dying: its memory is gone, its number not yet
    except psutil.ZombieProcess:
        return True
    except psutil.NoSuchProcess:
        return False


def is_stopped(pid: int) -> bool:
    """Whether the process was halted by SIGSTOP."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is gone already is no error."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise StreamError(f"process {pid} belongs to another user; run this as that user") from error


def wait_gone(pid: int, identity: Identity, *, timeout_s: float) -> bool:
    """Wait until the server is gone; False where it still runs after the timeout."""
    deadline = time.monotonic() + timeout_s
    while is_running(pid, identity):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def start_of_log(log: Path) -> int:
    """Where the lines of a server started now will begin; a log grown too long is put aside first."""
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return 0
    if size > LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))
        return 0
    return size


def lines_since(log: Path, start: int) -> list[str]:
    """The lines of a log from `start` on, the last 64 kB at most."""
    try:
        with open(log, "rb") as file:
            file.seek(max(log.stat().st_size - 65536, start))
            return file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


def last_of(lines: Sequence[str]) -> str:
    """The line that says why a server died: its last error, else its last line outside a stack trace."""
    spoken = [line.strip() for line in lines if line.strip() and not line.startswith((" ", "\t"))]
    errors = [line for line in spoken if any(word in line for word in ERROR_WORDS)]
    return (errors or spoken or ["(nothing)"])[-1]
