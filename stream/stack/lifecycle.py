"""Start, adopt and stop the two servers of a stack: each is taken as it is found."""

from __future__ import annotations

import errno
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stream.errors import StreamError
from stream.stack import process, state, wheels
from stream.stack.kafka import Kafka
from stream.stack.postgres import Postgres
from stream.stack.state import State

# A killed broker reads what it had not flushed, of every partition.
READY_TIMEOUT_S = 120.0
ADOPT_TIMEOUT_S = 20.0
STARTS = 5
# What a first start and a later one need at least; with less, they would stop somewhere in the middle.
NEW_BYTES, WARM_BYTES = 300_000_000, 50_000_000

# Lines after which the same start can succeed: somebody else took the port meanwhile; the last sessions of a
# killed server are not gone yet.
PASSING = ("Address already in use", "pre-existing shared memory block")

Progress = Callable[[str], None]
Server = Kafka | Postgres


@dataclass(frozen=True)
class Addresses:
    """Where the servers of a running stack are; the URL holds the password."""

    bootstrap_servers: str
    database_url: str


@dataclass(frozen=True)
class ServerStatus:
    """One server as `stack status` shows it; `pid` and `address` are None where there is none."""

    name: str
    state: Literal["up", "not answering", "stopped"]
    address: str | None
    pid: int | None
    log: Path


@dataclass
class Run:
    """A server on its way up: `log_start` is where its own lines begin."""

    server: Server
    pid: int
    adopted: bool
    log_start: int


def silent(_: str) -> None:
    """For callers that want no progress."""


def up(data: Path, *, progress: Progress = silent) -> Addresses:
    """Return when Kafka and PostgreSQL of the folder are ready, started now or found running.

    What died is started again and what hangs is replaced, on the same ports, with the same data. Any number
    of processes may call it at once. Raises StreamError, in one sentence, where it cannot be done.
    """
    wheels.check_installed()
    data = data.resolve()
    with _explained(data):
        state.make_folder(data)
        with state.locked(data, progress):
            return _up(data, progress)


def down(data: Path, *, delete: bool = False, progress: Progress = silent) -> None:
    """Stop what runs of the folder's stack and return when it is gone; with `delete`, remove its data too."""
    wheels.check_installed()
    data = data.resolve()
    with _explained(data):
        kafka, postgres = _servers(data, State(), progress)
        # Without the folder they may run all the same: it was removed under them.
        with state.locked(data, progress) if data.is_dir() else nullcontext():
            _stop([kafka, postgres], progress)
            if delete:
                postgres.discard()
                if data.exists():
                    shutil.rmtree(data)


def processes(data: Path) -> dict[str, int]:
    """The pids of the servers that run, by "kafka" and "postgres"."""
    kafka, postgres = _servers(data.resolve(), State(), silent)
    found = {"kafka": process.find(kafka.identity), "postgres": process.find(postgres.identity)}
    return {name: pid for name, pid in found.items() if pid is not None}


def restart_postgres(data: Path, mode: Literal["fast", "immediate"] = "fast") -> None:
    """Stop PostgreSQL, `immediate` as a crash would, and return when it is ready again."""
    data = data.resolve()
    with state.locked(data, silent):
        known = state.load_or_new(data)
        _, postgres = _servers(data, known, silent)
        pid = process.find(postgres.identity)
        if pid is not None:
            process.send(pid, signal.SIGQUIT if mode == "immediate" else signal.SIGINT)
            if not process.wait_gone(pid, postgres.identity, timeout_s=postgres.stop_timeout_s):
                raise StreamError(f"PostgreSQL (process {pid}) does not stop; its log is {postgres.log}")
        known.postgres_pid = _finish(_start(postgres, data, known), data, known)
        known.save(data)


def running_in(data: Path) -> Addresses | None:
    """Addresses of the folder's stack where both of its servers run, else None. Asks neither of them."""
    found = _known(data)
    if found is None:
        return None
    known, kafka, postgres = found
    if not process.is_running(known.kafka_pid, kafka.identity):
        return None
    if not process.is_running(known.postgres_pid, postgres.identity):
        return None
    return Addresses(kafka.address, postgres.database_url)


def recorded_in(data: Path) -> Addresses | None:
    """Addresses that the folder's stack had when it was last up, whether it runs or not; None where it never was."""
    found = _known(data)
    if found is None:
        return None
    known, kafka, postgres = found
    if known.kafka_port is None or known.postgres_port is None:
        return None
    return Addresses(kafka.address, postgres.database_url)


def _known(data: Path) -> tuple[State, Kafka, Postgres] | None:
    """What the folder says of its stack, and its servers; None where it never had one."""
    data = data.resolve()
    known = state.load(data)
    if known is None:
        return None
    wheels.check_installed()
    return known, *_servers(data, known, silent)


def status(data: Path) -> list[ServerStatus]:
    """What runs of the folder's stack, and whether it answers."""
    wheels.check_installed()
    data = data.resolve()
    return [_status(server) for server in _servers(data, state.load(data) or State(), silent)]


def _status(server: Server) -> ServerStatus:
    pid = process.find(server.identity)
    if pid is None:
        return ServerStatus(server.name, "stopped", None, None, server.log)
    works = not process.is_stopped(pid) and server.answers()
    return ServerStatus(server.name, "up" if works else "not answering", server.address, pid, server.log)


def _up(data: Path, progress: Progress) -> Addresses:
    is_new = state.load(data) is None
    known = state.load_or_new(data)
    kafka, postgres = _servers(data, known, progress)
    _check_space([data, postgres.home], NEW_BYTES if is_new else WARM_BYTES)
    if is_new:
        _stop([kafka, postgres], progress)  # of a stack whose folder was removed under it
        postgres.discard()
    known.postgres_home = _same_home(data, known, postgres.home)
    runs = [_begin(server, data, known) for server in (kafka, postgres)]
    known.kafka_pid, known.postgres_pid = [_finish(run, data, known) for run in runs]
    kafka.warm_up()
    known.save(data)
    return Addresses(kafka.address, postgres.database_url)


def _same_home(data: Path, known: State, home: Path) -> str | None:
    """Root's database is outside the folder: one that was moved must not get an empty one, or share one."""
    if home.is_relative_to(data):
        return None
    if known.postgres_home not in (None, str(home)):
        raise StreamError(
            f"{data} was moved or copied from elsewhere, and its database is still in {known.postgres_home}",
            hint=state.removal(data),
        )
    return str(home)


def _servers(data: Path, known: State, progress: Progress) -> tuple[Kafka, Postgres]:
    return Kafka(data, known, progress), Postgres(data, known, progress)


def _begin(server: Server, data: Path, known: State) -> Run:
    """Take over the server that runs, unless it was halted; start one where there is none."""
    pid = process.find(server.identity)
    if pid is None:
        return _start(server, data, known)
    if process.is_stopped(pid):
        _kill(server, pid)
        return _start(server, data, known)
    return Run(server, pid, adopted=True, log_start=0)


def _start(server: Server, data: Path, known: State) -> Run:
    server.choose_ports()
    known.save(data)  # before the start: whoever finds the server running must know its port
    log_start = process.start_of_log(server.log)
    return Run(server, server.spawn(), adopted=False, log_start=log_start)


def _finish(run: Run, data: Path, known: State) -> int:
    """Wait until the server works; returns its pid. A start that lost a race is made again."""
    server = run.server
    for attempt in range(1, STARTS + 1):
        if _ready(run):
            return run.pid
        died = not process.is_running(run.pid, server.identity)
        lines = process.lines_since(server.log, run.log_start)
        if not died:
            _kill(server, run.pid)
        if not run.adopted:
            if not died:
                raise StreamError(
                    f"{server.name} is not ready after {READY_TIMEOUT_S:.0f} s; see {server.log}"
                )
            if attempt == STARTS or not any(text in line for line in lines for text in PASSING):
                reason = process.last_of(lines)
                raise StreamError(f"{server.name} died while starting; {server.log} says: {reason}")
            time.sleep(0.2 * attempt)
        run = _start(server, data, known)
    raise AssertionError("unreachable")


def _ready(run: Run) -> bool:
    """Wait for the server to work; False when it died, or did not within its time."""
    deadline = time.monotonic() + (ADOPT_TIMEOUT_S if run.adopted else READY_TIMEOUT_S)
    while process.is_running(run.pid, run.server.identity):
        if run.server.answers():
            # Asked again: the answer must not be that of a server which died right after it.
            return process.is_running(run.pid, run.server.identity)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.03)
    return False


def _stop(servers: Sequence[Server], progress: Progress) -> None:
    running = [(server, pid) for server in servers if (pid := process.find(server.identity)) is not None]
    for server, pid in running:
        process.send(pid, server.stop_signal)
        process.send(pid, signal.SIGCONT)
    for server, pid in running:
        if not process.wait_gone(pid, server.identity, timeout_s=server.stop_timeout_s):
            progress(f"{server.name} (process {pid}) does not stop by itself: killed")
            _kill(server, pid)


def _kill(server: Server, pid: int) -> None:
    process.send(pid, signal.SIGKILL)
    if not process.wait_gone(pid, server.identity, timeout_s=10):
        raise StreamError(f"{server.name} (process {pid}) cannot be killed; its log is {server.log}")


def _check_space(folders: Sequence[Path], needed: int) -> None:
    for folder in folders:
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        if free < needed:
            numbers = f"{free / 1e6:.0f} MB are free, {needed / 1e6:.0f} MB are needed"
            raise StreamError(f"the disk of {folder} is full: {numbers}")


@contextmanager
def _explained(data: Path) -> Iterator[None]:
    """What the system refused, in one sentence."""
    try:
        yield
    except OSError as error:
        path = error.filename or data
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT:
                reason = f"the disk of {path} is full"
            case errno.EACCES | errno.EPERM | errno.EROFS:
                reason = f"cannot write to {path}: {(error.strerror or '').lower()}"
            case errno.ENOTDIR | errno.EEXIST:
                reason = f"{path} is in the way: it is not a folder"
            case _:
                reason = f"the embedded stack failed: {error}"
        raise StreamError(reason) from error
