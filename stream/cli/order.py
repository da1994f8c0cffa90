"""`stream order`: what happened to an order."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from stream import orders, views
from stream.cli.common import config_options, format_option, print_json, project_of, say
from stream.cli.text import columns, duration, printable
from stream.config import Config
from stream.errors import PartlyDone, StreamError
from stream.keys import shown_key, typed_key
from stream.orders import GroupOutcome, Order, OrderEvent, Unpublished
from stream.views import clock

Line = tuple[str, str, str]


@click.group(epilog="Example:  stream order show 536365")
def order() -> None:
    """What happened to an order."""


@order.command(short_help="Each event of KEY, with times.", epilog="Example:  stream order show 536365")
@click.argument("key")
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=60, show_default=True, help="Seconds of reading."
)
@format_option("text", "json")
@config_options
def show(config: Config, key: str, timeout: float, format_: str) -> None:
    """Each event of KEY: written, published, and what every group made of it, with the time between.

    KEY is text, or \\x and hex. Read are the outbox, the key's own partition of each topic, and the groups'
    ledger in this database. Times are UTC; a group's is when the transaction of its effects began.
    """
    found = orders.life(
        config,
        project_of(config),
        typed_key(key),
        seconds=timeout,
        progress=_progress if _on_a_terminal() else None,
    )
    if format_ == "json":
        print_json(contract_form(found))
    else:
        for line in _timeline(found):
            click.echo(line)
    for note in found.notes:
        say(note)
    for group in found.held:
        say(f"-> stream groups describe {shlex.quote(group)}")
    for event in found.events:
        for outcome in event.groups:
            if outcome.letter is not None:
                say(f"-> stream dlq show {outcome.letter}")
        if event.unpublished is not None:
            say(f"-> {_next_command(key, event.unpublished)}")
    _check_complete(found, key, timeout)


def contract_form(found: Order) -> dict[str, Any]:
    """The public JSON of `order show`."""
    return {
        "key": shown_key(found.key),
        "events": [
            {
                "event_id": str(event.event_id),
                "type": event.type,
                "topic": event.topic,
                "partition": event.partition,
                "offset": event.offset,
                "time": views.rfc3339(event.time),
                "published_at": None if event.published_at is None else views.rfc3339(event.published_at),
                "groups": [_group_form(outcome) for outcome in event.groups],
            }
            for event in found.events
        ],
    }


def _group_form(outcome: GroupOutcome) -> dict[str, Any]:
    names = ("group", "outcome", "at", "attempts", "epoch", "worker", "reason")
    return {name: views.as_json(getattr(outcome, name)) for name in names}


def _check_complete(found: Order, key: str, timeout: float) -> None:
    """Raise where nothing was found, or where the time was not enough to look everywhere."""
    short = [
        f"{scan.topic}[{scan.partition}] was read from {scan.first} to {scan.reached}, its end is {scan.end}"
        for scan in found.scans
        if not scan.complete
    ]
    if short:
        hint = f"stream order show {shlex.quote(key)} --timeout {max(timeout * 10, 60):.0f}"
        raise PartlyDone(f"not all was read in {timeout:.0f} s: {'; '.join(short)}", hint=hint)
    if not found.events:
        topics = ", ".join(scan.topic for scan in found.scans)
        raise StreamError(
            f"no event of key {key!r} in the outbox or in {topics or 'any topic'}", hint="stream outbox peek"
        )


def _timeline(found: Order) -> Iterator[str]:
    for number, event in enumerate(found.events):
        if number:
            yield ""
        place = event.topic if event.partition is None else f"{event.topic}[{event.partition}]@{event.offset}"
        yield f"{printable(event.type or '(no type)')}  {place}  {event.event_id}"
        first, *others = _lines(event)
        yield from (f"  {line}" for line in columns(first, others))


def _lines(event: OrderEvent) -> Iterator[Line]:
    """(time, duration since the event was written, what) of each step."""
    begun = event.appended_at
    if abs((event.time - begun).total_seconds()) >= 1:
        yield clock(event.time), "", "happened"
    yield clock(begun), "", "written"
    if event.unpublished is not None:
        yield from _waiting(event.unpublished)
    if event.published_at is not None:
        again = "".join(f", again at {offset}" for offset in event.repeats)
        yield clock(event.published_at), _since(begun, event.published_at), f"published{again}"
    width = max((len(outcome.group) for outcome in event.groups), default=0)
    for outcome in event.groups:
        reason = f": {printable(outcome.reason)}" if outcome.reason else ""
        letter = "" if outcome.letter is None else f", letter {outcome.letter}"
        holds = ", which holds its key" if outcome.holds else ""
        what = f"{outcome.group:<{width}}  {outcome.outcome or 'not yet'}{letter}{holds}{reason}"
        if outcome.at is None:
            tried = f"  (attempt {outcome.attempts})" if outcome.attempts else ""
            yield "", "", what + tried
            continue
        details = f"attempt {outcome.attempts}, worker {printable(outcome.worker or '')}"
        epoch = f", epoch {outcome.epoch}" if outcome.epoch else ""
        yield clock(outcome.at), _since(begun, outcome.at), f"{what}  ({details}{epoch})"


def _waiting(row: Unpublished) -> Iterator[Line]:
    now = datetime.now(UTC)
    if row.due_at is not None:
        yield (
            clock(row.due_at),
            _since(row.created_at, row.due_at),
            f"due (in {duration((row.due_at - now).total_seconds())})",
        )
    elif row.reason is not None:
        yield "", "", f"rejected, {row.reason}: {printable(row.error or '')}"
    else:
        yield "", _since(row.created_at, now), "waits for a relay"


def _next_command(key: str, row: Unpublished) -> str:
    if row.state == "rejected":
        return f"stream outbox retry --topic {shlex.quote(row.topic)} --key {shlex.quote(key)}"
    return "stream outbox status"


def _since(begun: datetime, then: datetime) -> str:
    return f"+{duration((then - begun).total_seconds())}"


def _on_a_terminal() -> bool:
    return sys.stderr.isatty()


def _progress(passed: int, total: int) -> None:
    click.echo(f"\rread {passed:,} of {total:,} records", err=True, nl=passed >= total)
