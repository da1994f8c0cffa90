"""One PostgreSQL server: its settings, its folder, its command line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from stream.errors import StreamError, Unreachable
from stream.stack import ports, process
from stream.stack.account import DATA, Account, account, home_of
from stream.stack.process import Identity
from stream.stack.state import State

PORT = 5432
USER = DATABASE = "stream"
UNFINISHED = "new-"

SETTINGS: Mapping[str, str] = {
    "listen_addresses": ports.HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    # One transaction may append for tens of thousands of keys, with an advisory lock each.
    "max_locks_per_transaction": "1024",
    "shared_buffers": "128MB",
    "fsync": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %a ",
}


class Postgres:
    """The database server of one stack."""

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # the fast shutdown: sessions are ended, nothing is lost
    stop_timeout_s = 30.0

    def __init__(self, data: Path, state: State, progress: Callable[[str], None]) -> None:
        self._state, self._progress = state, progress
        self.home = home_of(data)
        self._folder = self.home / DATA
        self.log = data / "postgres.log"
        self.identity = Identity("postgres", str(self._folder))

    @property
    def address(self) -> str:
        return f"{ports.HOST}:{self._state.postgres_port}"

    @property
    def database_url(self) -> str:
        return f"postgresql://{USER}:{self._state.password}@{self.address}/{DATABASE}"

    def choose_ports(self) -> None:
        """Keep the port of the last time where it is free."""
        wanted = self._state.postgres_port or PORT
        self._state.postgres_port = port = ports.choose(self._state.postgres_port, PORT)
        if port != wanted:
            self._progress(f"port {wanted} is taken by another program: PostgreSQL gets {port}")

    def spawn(self) -> int:
        """Make the database cluster if there is none and start the server; returns its pid at once."""
        runs_as = account(self.home, self._progress)
        if not self._folder.exists():
            self._create(runs_as)
        self._forget_stale_pid()
        command = [str(runs_as.install / "bin" / "postgres"), "-D", str(self._folder)]
        for name, value in {"port": self._state.postgres_port, **SETTINGS}.items():
            command += ["-c", f"{name}={value}"]
        return process.spawn(
            command,
            log=self.log,
            cwd=self.home,
            owner=runs_as.owner,
        )

    def discard(self) -> None:
        """Remove the data."""
        shutil.rmtree(self.home, ignore_errors=True)

    def answers(self) -> bool:
        """Whether the server works and is this one: another could sit on the port."""
        from stream.database import connect

        port = self._state.postgres_port
        if port is None or not ports.answers(port):
            return False
        try:
            with connect(self.database_url, application_name="stream-stack", autocommit=True) as connection:
                row = connection.execute("show data_directory").fetchone()
        except Unreachable:
            return False
        return row is not None and Path(row[0]) == self._folder

    def _create(self, runs_as: Account) -> None:
        """`initdb` and the first database, in a folder apart until both are done: a killed one is no data."""
        for left_behind in self.home.glob(f"{UNFINISHED}*"):
            shutil.rmtree(left_behind, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=self.home))
        data, password = folder / "data", folder / "password"
        data.mkdir(mode=0o700)
        password.touch(mode=0o600)
        password.write_text(self._state.password, encoding="utf-8")
        if runs_as.owner is not None:
            for path in (password, data, folder):
                os.chown(path, runs_as.owner.uid, runs_as.owner.gid)
        _run(
            *(runs_as, folder, "initdb", "-D", str(data), "-U", USER),
            *("--auth=scram-sha-256", "--pwfile", str(password), "--no-instructions"),
            *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
        )
        single = ("postgres", "--single", "-D", str(data), "-c", "max_connections=10", "postgres")
        _run(runs_as, folder, *single, stdin=f"create database {DATABASE} owner {USER};\n")
        data.rename(self._folder)
        shutil.rmtree(folder)

    def _forget_stale_pid(self) -> None:
        """A pid file whose number some other process has would make the server refuse to start.

        That a killed server's sessions still use the data is noticed without it, by their shared memory.
        """
        file = self._folder / "postmaster.pid"
        try:
            pid = int(file.read_text(encoding="ascii").split()[0])
        except (FileNotFoundError, ValueError, IndexError):
            return
        if process.is_in_the_way(pid, self.identity.program):
            file.unlink()


def _run(runs_as: Account, cwd: Path, program: str, *arguments: str, stdin: str = "") -> None:
    result = subprocess.run(
        [str(runs_as.install / "bin" / program), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=process.environment(),
        **process.as_user(runs_as.owner),
    )
    if result.returncode != 0 or "ERROR:" in result.stderr:
        raise StreamError(f"{program} failed: {process.last_of(result.stderr.splitlines())}")
