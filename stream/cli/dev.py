"""`stream dev`: everything of a project in one terminal."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import click

from stream import app, stack
from stream.cli.common import project_option
from stream.cli.signals import Stopper
from stream.cli.text import plural
from stream.config import Config
from stream.dev import STOP_S, Supervisor
from stream.discovery import discover
from stream.kafka.admin import check_reachable
from stream.project import Project
from stream.servers import servers
from stream.stack import process

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
DEV = "dev"


@click.command(
    short_help="Run stack, relay and all groups, until Ctrl-C.",
    epilog="Example:  stream dev --project myshop",
)
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
    stopping = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    stopper = Stopper(f"\nstopping (relay and groups get up to {STOP_S:.0f} s)", signals)
    stopper.stop = stopping.set

    def say(line: str) -> None:
        log.write(DEV, line)

    def starting(data: Path) -> None:
        stopper.hurry.append(lambda: _stop_at_once(data))

    with servers(project, say, afterwards=say, starting=starting) as config:
        if stopping.is_set():
            return
        check_reachable(config)
        for line in app.migrate(config, project).lines():
            say(line)
        commands = {name: ("consume", "--group", name) for name in groups}
        supervisor = Supervisor(
            {"relay": ("relay",), **commands},
            cwd=project.root,
            environment=_environment(config),
            write=log.write,
        )
        stopper.hurry.append(supervisor.kill)
        say(f"starting relay and {plural(len(groups), 'group')}; Ctrl-C stops")
        supervisor.run(stopping)
        say("relay and groups have stopped")


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


def _stop_at_once(data: Path) -> None:
    """Tell the stack's servers to stop, and do not wait for them."""
    signals = {"kafka": signal.SIGTERM, "postgres": signal.SIGINT}
    for name, pid in stack.processes(data).items():
        process.send(pid, signals[name])


def _environment(config: Config) -> dict[str, str]:
    addresses = {"KAFKA_BOOTSTRAP_SERVERS": config.bootstrap_servers, "DATABASE_URL": config.database_url}
    # Each child has a port of its own, and says which.
    ports = {} if config.metrics is None else {"STREAM_METRICS_PORT": "0"}
    return {**os.environ, **addresses, **ports}
