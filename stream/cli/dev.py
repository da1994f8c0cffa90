"""`stream dev`: everything of a project in one terminal."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click

from stream import app, stack
from stream.cli.common import project_option
from stream.cli.text import plural
from stream.config import Config
from stream.dev import STOP_S, Supervisor
from stream.discovery import discover
from stream.errors import UsageError
from stream.kafka.admin import check_reachable
from stream.project import Project
from stream.stack import process

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
DEV = "dev"
RAN_BEFORE = "Kafka and PostgreSQL ran before and go on   (stream stack down)"


@click.command(epilog="Example:  stream dev --project myshop")
@project_option
def dev(project_dir: Path) -> None:
    """Run stack, relay and all groups of the project, with one log, until Ctrl-C.

    Starts Kafka and PostgreSQL of the project, unless they run or KAFKA_BOOTSTRAP_SERVERS and DATABASE_URL are
    set; brings tables and topics up to date; starts relay and groups, each a process, and starts again what dies.
    Ctrl-C stops them all, and the stack if it was started here; a second Ctrl-C does so at once.
    """
    project = Project(project_dir)
    groups = discover(project)
    log = Log(["relay", *groups])
    stopper = Stopper()
    with servers(project, stopper, log) as config:
        if stopper.stopping.is_set():
            return
        check_reachable(config)
        for line in app.migrate(config, project).lines():
            log.write(DEV, line)
        commands = {name: ("consume", "--group", name) for name in groups}
        supervisor = Supervisor(
            {"relay": ("relay",), **commands},
            cwd=project.root,
            environment=_environment(config),
            write=log.write,
        )
        stopper.hurry.append(supervisor.kill)
        log.write(DEV, f"starting relay and {plural(len(groups), 'group')}; Ctrl-C stops")
        supervisor.run(stopper.stopping)
        log.write(DEV, "relay and groups have stopped")


class Log:
    """One log on stderr for several processes: each line behind its name, coloured on a terminal."""

    def __init__(self, names: list[str]) -> None:
        self._width = max(len(name) for name in [*names, DEV])
        colours = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(names)}
        self._colours = colours if sys.stderr.isatty() and not os.environ.get("NO_COLOR") else {}
        self._lock = threading.Lock()

    def write(self, name: str, line: str) -> None:
        """From any thread. A terminal that is gone is no reason to end."""
        prefix = f"{name:<{self._width}} |"
        if name in self._colours:
            prefix = click.style(prefix, fg=self._colours[name])
        with self._lock, suppress(OSError):
            sys.stderr.write(f"{prefix} {line}\n")
            sys.stderr.flush()


class Stopper:
    """The first signal sets `stopping`; the second calls what is in `hurry` and ends the process at once."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.hurry: list[Callable[[], None]] = []
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.stopping.is_set():
            for action in self.hurry:
                action()
            os._exit(128 + number)
        self.stopping.set()
        # Not through the log: a signal can come while this thread holds its lock.
        with suppress(OSError):
            os.write(
                2, f"\nstopping (relay and groups get up to {STOP_S:.0f} s); again stops at once\n".encode()
            )


@contextmanager
def servers(project: Project, stopper: Stopper, log: Log) -> Iterator[Config]:
    """The servers that are given or run already; else the project's own stack, stopped at the end."""

    def say(line: str) -> None:
        log.write(DEV, line)

    config = _given(project)
    if config is not None:
        yield config
        if _is_of_the_stack(config, project):
            say(RAN_BEFORE)
        return
    data = project.root / stack.FOLDER
    ours = all(server.state == "stopped" for server in stack.status(data))
    if ours:
        stopper.hurry.append(lambda: _stop_at_once(data))
    try:
        say("starting Kafka and PostgreSQL")
        stack.up(data, progress=say)
        yield Config.load(project.root, quiet=True)
    finally:
        if ours:
            stack.down(data, progress=say)
            say("Kafka and PostgreSQL have stopped; their data is kept")
        else:
            say(RAN_BEFORE)


def _given(project: Project) -> Config | None:
    """Where the servers are, if that is known already."""
    try:
        return Config.load(project.root)
    except UsageError:
        if stack.running(project.root) is not None:
            raise  # the addresses are there; something else is wrong
        return None


def _is_of_the_stack(config: Config, project: Project) -> bool:
    found = stack.running(project.root)
    return found is not None and config.bootstrap_servers == found.bootstrap_servers


def _stop_at_once(data: Path) -> None:
    """Tell the stack's servers to stop, and do not wait for them."""
    signals = {"kafka": signal.SIGTERM, "postgres": signal.SIGINT}
    for name, pid in stack.processes(data).items():
        process.send(pid, signals[name])


def _environment(config: Config) -> dict[str, str]:
    addresses = {"KAFKA_BOOTSTRAP_SERVERS": config.bootstrap_servers, "DATABASE_URL": config.database_url}
    return {**os.environ, **addresses}
