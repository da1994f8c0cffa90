"""Commands run inside the test's own process: quicker than spawned ones, for all that does not kill."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

import structlog
from click.testing import CliRunner, Result

from stream.cli import main
from stream.config import Config


def stream(config: Config, *words: str, env: Mapping[str, str] | None = None) -> Result:
    """Run a command on the test's project, database, broker and prefix."""
    environ = {
        "KAFKA_BOOTSTRAP_SERVERS": config.bootstrap_servers,
        "DATABASE_URL": config.database_url,
        "STREAM_PREFIX": config.prefix,
        **(env or {}),
    }
    try:
        return CliRunner().invoke(main, [*words, "--project", str(config.project)], env=environ)
    finally:
        structlog.reset_defaults()  # the command's log went to a stream that is closed now


def stream_json(config: Config, *words: str) -> Any:
    """The JSON document that the command prints."""
    result = stream(config, *words, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def hints(result: Result) -> list[str]:
    """The commands that the command says to type next."""
    return [line[3:] for line in result.stderr.splitlines() if line.startswith("-> ")]


def follow(config: Config, command: str) -> Result:
    """Run a command that was printed to be typed next."""
    return stream(config, *shlex.split(command)[1:])
