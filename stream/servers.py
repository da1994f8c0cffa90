"""Kafka and PostgreSQL for as long as a command needs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stream import stack
from stream.config import BROKER, DATABASE, Config
from stream.errors import UsageError
from stream.project import Project

RAN_BEFORE = "Kafka and PostgreSQL ran before and go on   (stream stack down)"
STOPPED = "Kafka and PostgreSQL have stopped; their data is kept"

Say = Callable[[str], None]


@contextmanager
def servers(
    project: Project, say: Say, *, afterwards: Say, starting: Callable[[Path], None] | None = None
) -> Iterator[Config]:
    """The servers that are given or run already; else the project's own stack, stopped at the end.

    A start that is interrupted is stopped too. `afterwards` is told what became of the project's stack; `starting`
    gets its data's folder before it is started, if nothing of it runs.
    """
    config = _given(project)
    if config is not None:
        yield config
        if _is_of_the_stack(config, project):
            afterwards(RAN_BEFORE)
        return
    data = project.root / stack.FOLDER
    ours = all(server.state == "stopped" for server in stack.status(data))
    if ours and starting is not None:
        starting(data)
    try:
        say("starting Kafka and PostgreSQL")
        environ = _environ(project)
        stack.up(data, progress=say)
        yield Config.load(project.root, environ=environ, quiet=True)
    finally:
        if ours:
            stack.down(data, progress=say)
        afterwards(STOPPED if ours else RAN_BEFORE)


def _given(project: Project) -> Config | None:
    """Where the servers are, if that is known already."""
    try:
        return Config.load(project.root, environ=_environ(project))
    except UsageError:
        if stack.running(project.root) is not None:
            raise  # the addresses are there; something else is wrong
        return None


def _environ(project: Project) -> dict[str, str]:
    """The environment without addresses of the project's own stack that were exported before it stopped: others may
    listen there by now, and it somewhere else."""
    recorded = stack.recorded_in(project.root / stack.FOLDER)
    if recorded is None or stack.running(project.root) is not None:
        return dict(os.environ)
    stale = {(BROKER, recorded.bootstrap_servers), (DATABASE, recorded.database_url)}
    return {name: value for name, value in os.environ.items() if (name, value) not in stale}


def _is_of_the_stack(config: Config, project: Project) -> bool:
    found = stack.running(project.root)
    return found is not None and config.bootstrap_servers == found.bootstrap_servers
