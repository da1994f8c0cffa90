"""`stream topics`: the records of a topic, read past the groups."""

from __future__ import annotations

import functools
import json
import shlex
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from threading import Event
from typing import Any

import click

from stream.cli import recordtext
from stream.cli.common import broker_options, format_option, project_of, say
from stream.cli.growing import grow
from stream.cli.listing import list_topics
from stream.cli.positions import GRAMMAR, place, where
from stream.cli.signals import Stopper
from stream.config import Config
from stream.errors import PartlyDone, StreamError, UsageError
from stream.inspection import BEGINNING, Inspected, Inspection, Position, Selection, inspected, record_form
from stream.keys import HEX, shown_key, typed_key

LAST = 10
MOST_LAST = 100_000
FOLLOWING = "following; Ctrl-C stops"


@click.group(
    short_help="Topics, and the records of one; more partitions.",
    epilog="""\b
Examples:
  stream topics list
  stream topics inspect orders --key 536365""",
)
def topics() -> None:
    """The topics under this project's prefix, and the records of any, those of retries and dead letters too.

    No group is joined, nothing is committed: reading disturbs nobody. `grow` gives a topic more partitions.
    """


topics.add_command(list_topics)
topics.add_command(grow)


_OPTIONS = (
    click.option(
        "-o",
        "--offset",
        "start_until",
        callback=where,
        multiple=True,
        metavar="POSITION",
        help="Where to start, or with e@TIME to end; see below.",
    ),
    click.option(
        "-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one."
    ),
    click.option("--key", metavar="KEY", help=f"Only of this key, in its partition: text, or {HEX} and hex."),
    click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C."),
    click.option("--hex", "hexed", is_flag=True, help="Key and value as bytes in hex, not decoded."),
    click.option(
        "--raw", is_flag=True, help="Only values, byte for byte, each with a newline; not on a terminal."
    ),
    format_option("text", "json", "jsonl"),
)


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what both commands take; the command gets `selection` and `out`."""

    @functools.wraps(command)
    def with_selection(
        *,
        config: Config,
        topic: str,
        start_until: tuple[Position | None, datetime | None],
        partitions: tuple[int, ...],
        key: str | None,
        follow: bool,
        hexed: bool,
        raw: bool,
        format_: str,
        **kwargs: Any,
    ) -> None:
        start, until = start_until
        if follow and until is not None:
            raise UsageError("--follow has no end; leave out -o e@TIME")
        if follow and format_ == "json":
            raise UsageError(
                "--follow never ends, and a JSON document does", hint=_again(topic, "--follow --format jsonl")
            )
        if (hexed or raw) and (hexed == raw or format_ != "text"):
            raise UsageError("--hex, --raw and --format json or jsonl exclude each other")
        if raw and sys.stdout.isatty():
            raise UsageError("--raw: bytes of others can steer a terminal", hint=_again(topic, "--hex"))
        selection = Selection(
            topic, partitions or None, None if key is None else typed_key(key), start or BEGINNING, until
        )
        command(config, selection, follow=follow, hexed=hexed, form="raw" if raw else format_, **kwargs)

    decorated = broker_options(with_selection)
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


@topics.command(
    short_help="Records with all that is known of them.",
    epilog=f"{GRAMMAR}\nExample:  stream topics inspect orders -p 3 -o s@2h -c 5",
)
@click.argument("topic", metavar="TOPIC")
@click.option("-c", "--count", type=click.IntRange(1), help="End after so many records.")
@reading_options
def inspect(
    config: Config, selection: Selection, *, count: int | None, follow: bool, hexed: bool, form: str
) -> None:
    """Records with all that is known of them: position, key, headers, schema number, and the decoded value.

    One partition after the other, from -o (its first record) to the end it has now. TOPIC may be a position
    as every line shows it, 'orders[3]@1207': that record alone. What cannot be decoded is shown with the reason,
    and with its bytes. Times are UTC.
    """
    selection, one = _one_or_all(selection, chosen_more=follow or count is not None)
    stopper, stopping = Stopper("stopping"), Event()
    codec = project_of(config).codec
    inspection = Inspection(config, selection, stopping)
    stopper.stop = stopping.set
    if not one:
        _say_notes(inspection)
    elif inspection.notes:
        inspection.close()
        raise StreamError(inspection.notes[0], hint=f"stream topics tail {selection.topic}")
    shown = 0
    with inspection, Out(form, functools.partial(recordtext.page, hexed=hexed), apart=True) as out:
        for record in inspection.first(count):
            out.one(inspected(record, codec))
            shown += 1
            if stopping.is_set():
                break
        if follow and (count is None or shown < count):
            say(FOLLOWING)
            for record in inspection.follow():
                out.one(inspected(record, codec))
                shown += 1
                if shown == count:
                    break
    if not follow:
        _check(inspection, shown, stopping)
        if one and not shown:
            [scan] = inspection.scans
            position = f"{scan.topic}[{scan.partition}]@{scan.first}"
            raise StreamError(f"no record is at {position}: a gap", hint=f"stream topics tail {scan.topic}")


@topics.command(
    short_help="The last records, one a line.",
    epilog=f"{GRAMMAR}\nExample:  stream topics tail orders --follow",
)
@click.argument("topic", metavar="TOPIC")
@click.option(
    "-c",
    "--count",
    type=click.IntRange(1, MOST_LAST),
    default=LAST,
    show_default=True,
    help="The last so many, of all partitions together.",
)
@reading_options
def tail(config: Config, selection: Selection, *, count: int, follow: bool, hexed: bool, form: str) -> None:
    """The last records of a topic by time, of all partitions together, one a line; with --follow what comes, too.

    A line has time (UTC), position, key, type and schema number, and the decoded value, or the reason why it
    cannot be decoded.
    """
    stopper, stopping = Stopper("stopping"), Event()
    codec = project_of(config).codec
    inspection = Inspection(config, selection, stopping)
    stopper.stop = stopping.set
    _say_notes(inspection)
    with inspection, Out(form, lambda one: [recordtext.line(one, hexed=hexed)]) as out:
        found = inspection.last(count)
        for record in found:
            out.one(inspected(record, codec))
        if follow:
            say(FOLLOWING)
            for record in inspection.follow():
                out.one(inspected(record, codec))
    if not follow:
        _check(inspection, len(found), stopping)


class Out:
    """Prints records in a form, as they come: text, jsonl, raw, or json, selection is one array."""

    def __init__(self, form: str, text: Callable[[Inspected], Iterable[str]], *, apart: bool = False) -> None:
        self._form, self._text, self._apart = form, text, apart
        self._count = 0

    def __enter__(self) -> Out:
        return self

    def __exit__(self, *_: object) -> None:
        if self._form == "json":
            click.echo("\n]" if self._count else "[]")

    def one(self, one: Inspected) -> None:
        if self._form == "raw":
            click.echo(one.record.value or b"")
        elif self._form == "text":
            if self._apart and self._count:
                click.echo()
            for line in self._text(one):
                click.echo(line)
        else:
            text = json.dumps(record_form(one), ensure_ascii=False, default=str)
            if self._form == "json":
                click.echo(",\n" if self._count else "[\n", nl=False)
            click.echo(text, nl=self._form == "jsonl")
        self._count += 1


def _one_or_all(selection: Selection, *, chosen_more: bool) -> tuple[Selection, bool]:
    """The selection, and whether it is one record's: its topic may be a position."""
    found = place(selection.topic)
    if found is None:
        return selection, False
    if chosen_more or selection != Selection(selection.topic):
        message = f"{selection.topic} is one record: no option chooses more"
        raise UsageError(message, hint=_again(selection.topic))
    topic, partition, offset = found
    return Selection(topic, [partition], start=Position("offset", offset), most=1), True


def _say_notes(inspection: Inspection) -> None:
    for note in inspection.notes:
        say(note)


def _check(inspection: Inspection, shown: int, stopping: Event) -> None:
    """Say what was read where nothing was found; raise PartlyDone where it was stopped before its end."""
    left = inspection.left
    if stopping.is_set() and left:
        rest = ", ".join(f"{scan.position} of {scan.end}" for scan in left)
        first, key = left[0], shown_key(inspection.selection.key)
        hint = f"stream topics inspect {first.topic} -p {first.partition} -o {first.reached}"
        hint += "" if key is None else f" --key {shlex.quote(key)}"
        raise PartlyDone(f"stopped; not read: {rest}", hint=hint)
    if not shown:
        read = ", ".join(
            f"{scan.topic}[{scan.partition}] {scan.first} to {scan.end}" for scan in inspection.scans
        )
        say(f"no record fits; read: {read}")


def _again(topic: str, options: str = "") -> str:
    """The command that was typed, with these options instead of its own."""
    return f"stream topics {click.get_current_context().info_name} {shlex.quote(topic)} {options}".rstrip()
