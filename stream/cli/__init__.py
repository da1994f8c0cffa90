"""The command `stream`: one thin file a family, loaded only when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

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
    "rewind": ("stream.cli.rewind", "rewind"),
    "outbox": ("stream.cli.outbox", "outbox"),
    "parked": ("stream.cli.parked", "parked_keys"),
    "dlq": ("stream.cli.dlq", "dlq"),
    "order": ("stream.cli.order", "order"),
    "topics": ("stream.cli.topics", "topics"),
    "doctor": ("stream.cli.doctor", "doctor"),
    "ledger": ("stream.cli.ledger", "ledger"),
    "schema": ("stream.cli.schema", "schema"),
}

WORDS = "stream.words"  # of the command line, from the family's name on


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

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise _shown(error) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        ctx.meta[WORDS] = list(args)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
            raise
        except click.UsageError as error:
            raise _shown(error) from None
        except Exception as error:
            from stream.cli.ending import ending, path_of

            shown = ending(error, path_of(self, ctx, ctx.meta.get(WORDS, ())))
            if shown is None:
                raise
            click.echo(f"Error: {shown}", err=True)
            ctx.exit(shown.exit_code)


def _shown(error: click.UsageError) -> click.exceptions.Exit:
    """Says what was typed wrongly, and how to find out more."""
    path = "stream" if error.ctx is None else error.ctx.command_path
    click.echo(f"Error: {error.format_message()}\n-> {path} --help", err=True)
    return click.exceptions.Exit(error.exit_code)


EPILOG = """\b
Words:
  outbox        events written by a transaction, until a relay has published them
  group         a consumer group: reads topics, applies each event once, in order per key
  parked        a key whose event failed: it waits, and later events of the key behind it
  held          a parked key whose event is dead: it waits for you
  dead letter   an event that was given up, in the DLQ of its group
  ledger        which events each group has applied

\b
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
    epilog=EPILOG,
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
    stream doctor                        what is wrong, and what to type next
    stream groups list                   how the groups stand
    stream parked list                   which orders wait or are held, since when, and why
    stream order show 536365             what happened to an order
    stream topics tail orders --follow   records as they come, decoded
    stream dlq list                      what failed for good, by what failed alike
    stream dlq replay 41                 run a dead letter again, in its place
    stream rewind --group stock --by-duration 1h      what reading the last hour again would do
    """
    from stream.logs import configure

    configure(log_level, log_format or os.environ.get("STREAM_LOG_FORMAT") or None)
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a pipe's encoding must not end a command
