"""`stream order`: what happened to an order."""

from __future__ import annotations

import shlex
import sys
from threading import Event

import click

from stream import orders
from stream.cli.common import config_options, format_option, print_json, project_of, say
from stream.cli.ordertext import contract_form, timeline
from stream.cli.signals import Stopper
from stream.cli.text import printable
from stream.config import Config
from stream.errors import PartlyDone, StreamError, UsageError
from stream.keys import typed_key
from stream.orders import Order, Unpublished


class _Order(click.Group):
    """Says what to type where a key stands for the command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-"):
            key = shlex.quote(printable(args[0], 200))
            raise UsageError(f"no such command: {key}", hint=f"stream order show {key}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Order, epilog="Example:  stream order show 536365")
def order() -> None:
    """What happened to an order."""


@order.command(short_help="The whole life of KEY, with times.", epilog="Example:  stream order show 536365")
@click.argument("key")
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=60, show_default=True, help="Seconds of reading."
)
@format_option("text", "json")
@config_options
def show(config: Config, key: str, timeout: float, format_: str) -> None:
    """Each event of KEY: written, published, and what became of it in every group, with the time between.

    That is: tries that failed, waiting behind another event, dead letters, what people did with them, and the end.
    KEY is text, or \\x and hex. Read are the outbox, the key's own partition of each topic, and what the groups
    wrote down in this database. A time after + is since the step before of the same group, the first since it was
    published; called is a try that was due and came back by the retry topic, copied a dead letter's record in the DLQ.
    Times are UTC; an outcome's is when the transaction of its effects began. Ctrl-C ends
    the reading: what was found is shown, and how far it came (exit 6).
    """
    stopper, stopping = Stopper("showing what was found"), Event()
    project = project_of(config)
    stopper.stop = stopping.set
    found = orders.life(
        config,
        project,
        typed_key(key),
        seconds=timeout,
        progress=_progress if _on_a_terminal() else None,
        stopping=stopping,
    )
    if format_ == "json":
        print_json(contract_form(found))
    else:
        for line in timeline(found):
            click.echo(line)
    for note in found.notes:
        say(note)
    _say_next(found, key)
    _check_complete(found, key, "stopped" if stopping.is_set() else f"{timeout:.0f} s were over", timeout)


def _say_next(found: Order, key: str) -> None:
    for group in found.held:
        say(f"-> stream groups describe {shlex.quote(group)}")
    for event in found.events:
        for outcome in event.groups:
            if outcome.letter is not None:
                say(f"-> stream dlq show {outcome.letter}")
        if event.unpublished is not None:
            say(f"-> {_next_command(key, event.unpublished)}")


def _check_complete(found: Order, key: str, why: str, timeout: float) -> None:
    """Raise where nothing was found, or where it was not looked everywhere."""
    short = [
        f"{scan.topic}[{scan.partition}] was read from {scan.first} to {scan.reached}, its end is {scan.end}"
        for scan in found.scans
        if not scan.complete
    ]
    if short:
        hint = f"stream order show {shlex.quote(key)} --timeout {max(timeout * 10, 60):.0f}"
        raise PartlyDone(f"not all was read, {why}: {'; '.join(short)}", hint=hint)
    if not found.events:
        topics = ", ".join(scan.topic for scan in found.scans)
        raise StreamError(
            f"no event of key {key!r} in the outbox or in {topics or 'any topic'}", hint="stream outbox peek"
        )


def _next_command(key: str, row: Unpublished) -> str:
    if row.state == "rejected":
        return f"stream outbox retry --topic {shlex.quote(row.topic)} --key {shlex.quote(key)}"
    return "stream outbox status"


def _on_a_terminal() -> bool:
    return sys.stderr.isatty()


def _progress(passed: int, total: int) -> None:
    click.echo(f"\rread {passed:,} of {total:,} records", err=True, nl=passed >= total)
