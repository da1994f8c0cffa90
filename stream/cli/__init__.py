"""The command `stream`: one thin file a family, loaded only when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from stream.errors import StreamError

# command -> (module, attribute)
COMMANDS = {
    "init": ("stream.cli.init", "init"),
    "stack": ("stream.cli.stack", "stack"),
    "dev": ("stream.cli.dev", "dev"),
    "demo": ("stream.cli.demo", "demo"),
    "migrate": ("stream.cli.migrate", "migrate"),
    "relay": ("stream.cli.relay", "relay"),
    "consume": ("stream.cli.consume", "consume"),
    "groups": ("stream.cli.groups", "groups"),
    "topics": ("stream.cli.topics", "topics"),
    "outbox": ("stream.cli.outbox", "outbox"),
    "parked": ("stream.cli.parked", "parked_keys"),
    "dlq": ("stream.cli.dlq", "dlq"),
    "order": ("stream.cli.order", "order"),
    "schema": ("stream.cli.schema", "schema"),
}


class Families(click.Group):
    """Commands by name; a family's module is imported when one of its commands is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StreamError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(error.exit_code)


EXIT_CODES = """\b
Exit codes:
  0         done, or stopped by a first signal
  1         failed
  2         a name, an option or a file that was given is wrong
  3         Kafka or PostgreSQL does not answer
  4         refused; nothing was changed
  5         a check says no
  6         done in part, the rest is named
  7         out of memory; start it again
  130, 143  stopped at once, by a second signal
"""


@click.group(
    cls=Families,
    epilog=EXIT_CODES,
    context_settings={"auto_envvar_prefix": "STREAM", "help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="order-event-stream")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least that is logged, on stderr.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), help="Default: text on a terminal, JSON elsewhere."
)
def main(log_level: str, log_format: str | None) -> None:
    """Orders written to PostgreSQL, carried by Kafka, applied once and in order.

    \b
    Examples:
    stream demo                          see the whole of it work
    stream init myshop                   a new project that runs
    stream dev                           stack, relay and all groups in the foreground
    stream migrate                       tables and topics
    stream relay                         outbox rows to topics
    stream consume --group invoicing     run a consumer group
    stream groups list                   how the groups stand
    stream order show 536365             what happened to an order
    stream dlq list                      what failed for good, by what failed alike
    """
    from stream.logs import configure

    configure(log_level, log_format or os.environ.get("STREAM_LOG_FORMAT") or None)
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a pipe's encoding must not end a command
