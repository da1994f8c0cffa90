"""What every command shares: its Config, and how an error leaves the process."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from stream.config import Config
from stream.errors import UsageError
from stream.project import Project

F = TypeVar("F", bound=Callable[..., Any])

SAY_EVERY_S = 5.0  # how far a command has come, where there is no terminal


def project_option(command: F) -> F:
    return click.option(
        "--project",
        "project_dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("."),
        show_default="the current folder",
        help="The folder that holds consumers/ and schemas/.",
    )(command)


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --project, --bootstrap-server, --database-url, --prefix and -X; the command gets `config`."""
    return _with_config(command)


def looking_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that says itself what is missing: addresses are empty where no stack runs."""
    return _with_config(command, absent_ok=True)


def process_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same, and --metrics-port, for a command that runs until it is stopped."""
    return click.option(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="Show /metrics, /livez and /readyz there; 0: on any free port; without HOST on 127.0.0.1 only."
        " [env: STREAM_METRICS_PORT]",
    )(_with_config(command, broker=True))


def database_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that needs the database only: without a broker it runs as well."""
    return _with_config(command, broker=False)


def broker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that needs the broker only: without a database it runs as well."""
    return _with_config(command, database=False)


def format_option(*formats: str) -> Callable[[F], F]:
    """--format, with the first as the default."""
    return click.option(
        "--format",
        "format_",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Of what is printed on stdout.",
    )


def project_of(config: Config) -> Project:
    return Project(config.project)


def print_json(value: object) -> None:
    """One JSON document on stdout; times are RFC 3339 already."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def say(message: str) -> None:
    """A line for people: on stderr, so that stdout holds data only."""
    print(message, file=sys.stderr, flush=True)


class Ticker:
    """Says how far a command has come, on stderr: on a terminal in one line, elsewhere now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._said = time.monotonic()
        self._width = 0

    def tick(self, line: str) -> None:
        if self._terminal:
            click.echo("\r" + self._over(line), err=True, nl=False)
        elif time.monotonic() - self._said >= SAY_EVERY_S:
            self._said = time.monotonic()
            say(line)

    def end(self, line: str) -> None:
        """The last word, on a terminal over the line that stands there."""
        say("\r" + self._over(line) if self._terminal else line)

    def _over(self, line: str) -> str:
        line, self._width = line.ljust(self._width), len(line)
        return line


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise UsageError(f"-X: expected KEY=VALUE, got {text!r}")
    return name, value


def _with_config(
    command: Callable[..., Any], *, broker: bool = True, database: bool = True, absent_ok: bool = False
) -> Callable[..., Any]:
    @project_option
    @click.option("--bootstrap-server", metavar="HOST:PORT", help="Kafka. [env: KAFKA_BOOTSTRAP_SERVERS]")
    @click.option(
        "--database-url", metavar="URL", help="PostgreSQL. [env: DATABASE_URL; better there than in argv]"
    )
    @click.option("--prefix", help="Stands before every topic, group and client id. [env: STREAM_PREFIX]")
    @click.option(
        "-X", "properties", multiple=True, metavar="KEY=VALUE", help="A TLS or SASL setting of librdkafka."
    )
    @functools.wraps(command)
    def with_config(
        *args: Any,
        project_dir: Path,
        bootstrap_server: str | None,
        database_url: str | None,
        prefix: str | None,
        properties: tuple[str, ...],
        metrics_port: str | None = None,
        **kwargs: Any,
    ) -> Any:
        config = Config.load(
            project_dir,
            bootstrap_servers=bootstrap_server,
            database_url=database_url,
            prefix=prefix,
            kafka=dict(_pair(text) for text in properties),
            metrics_port=metrics_port,
            broker=broker,
            database=database,
            absent_ok=absent_ok,
        )
        return command(*args, config=config, **kwargs)

    return with_config
