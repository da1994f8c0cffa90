"""`stream outbox`: what waits for its topic, what cannot be published, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from stream import rejected, views
from stream.cli.common import database_options, format_option, print_json, project_of, say
from stream.cli.migrated import migrated
from stream.cli.text import columns, duration, plural, printable
from stream.config import Config
from stream.database import Connection
from stream.errors import PartlyDone, Refused, StreamError, UsageError
from stream.floors import SHARDS
from stream.keys import HEX, shown_key, typed_key
from stream.rejected import RejectedKey
from stream.views import RejectedRow, clock

SESSION = "stream-outbox"

topic_option = click.option("--topic", help="Only rows of this topic.")


@click.group(
    short_help="Rows that wait, and rows that cannot be published.", epilog="Example:  stream outbox status"
)
def outbox() -> None:
    """Rows that wait for their topic, and rows that cannot be published."""


@outbox.command(
    short_help="How many rows wait, since when, for what.",
    epilog="Example:  stream outbox status --format json",
)
@format_option("text", "json")
@database_options
def status(config: Config, format_: str) -> None:
    """How many rows wait, since when, for what; which relays are at work."""
    with migrated(config, SESSION) as connection:
        found = views.outbox_status(connection)
    if format_ == "json":
        print_json(views.as_json(found))
    else:
        _print_status(found)
    if found.rejected:
        say("-> stream outbox rejected")
    if not found.relays:
        say("no relay is at work\n-> stream relay")


@outbox.command(epilog="Example:  stream outbox peek --key 536365")
@topic_option
@click.option("--key", metavar="KEY", help=f"Only rows of this key: text, or {HEX} and hex.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=10, show_default=True, help="At most so many rows."
)
@format_option("text", "json")
@database_options
def peek(config: Config, topic: str | None, key: str | None, limit: int, format_: str) -> None:
    """The oldest rows that wait for their topic, with their data."""
    wanted = None if key is None else typed_key(key)
    codec = project_of(config).codec
    with migrated(config, SESSION) as connection:
        rows = views.waiting_rows(connection, codec, topic=topic, key=wanted, limit=limit)
    if format_ == "json":
        print_json(views.as_json(rows))
        return
    header = ("ID", "TOPIC", "KEY", "TYPE", "AGE", "DATA")
    lines = [
        (str(row.id), row.topic, shown_key(row.key) or "-", row.type, duration(row.age_seconds),
         printable(str(row.data), 80))
        for row in rows
    ]  # fmt: skip
    _print_table(header, lines, "nothing waits for its topic")


@outbox.command(
    "rejected",
    short_help="Rows that could not be published, and why.",
    epilog="Example:  stream outbox rejected --topic orders",
)
@topic_option
@format_option("text", "json")
@database_options
def show_rejected(config: Config, topic: str | None, format_: str) -> None:
    """Rows that could not be published, why, and the rows of their keys that stand behind them."""
    with migrated(config, SESSION) as connection:
        rows = views.rejected_rows(connection, topic=topic)
    if format_ == "json":
        print_json(views.as_json(rows))
    else:
        header = ("ID", "TOPIC", "KEY", "TYPE", "REASON", "AGE", "ERROR")
        _print_table(header, [_rejected_cells(row) for row in rows], "nothing is rejected")
    if rows:
        first = rejected.by_key(rows)[0]
        say(f"-> {first.command('retry')}\n-> {first.command('discard')}")


@outbox.command(
    short_help="Give rejected rows back to the relay.", epilog="Example:  stream outbox retry --key 536365"
)
@topic_option
@click.option("--key", metavar="KEY", help=f"Only this key, at once: text, or {HEX} and hex.")
@click.option(
    "--execute",
    is_flag=True,
    help="Act; without it rows are only listed, unless --key names them, in one topic.",
)
@database_options
def retry(config: Config, topic: str | None, key: str | None, execute: bool) -> None:
    """Give rejected rows back to the relay, with the rows behind them, in their old order.

    What was wrong should be mended first: a schema, the topic's limit. What is still wrong is rejected again.
    """
    keys = [] if key is None else [typed_key(key)]
    with migrated(config, SESSION) as connection:
        chosen = rejected.by_key(views.rejected_rows(connection, topic=topic, keys=keys))
        if not chosen and key is not None:
            raise StreamError(f"no rejected row of key {key!r}", hint="stream outbox rejected")
        if not chosen:
            say("nothing is rejected")
            return
        if not execute and not (len(chosen) == 1 and key is not None):
            _print_plan(chosen, ["retry", *_given(topic, [key] if key else [])])
            return
        _retry_each(connection, chosen)


@outbox.command(epilog="Example:  stream outbox discard --id 4711 --reason 'a test order'")
@topic_option
@click.option(
    "--key", "keys", metavar="KEY", multiple=True, help=f"All rejected rows of it: text, or {HEX} and hex."
)
@click.option(
    "--id", "ids", type=int, metavar="ID", multiple=True, help="One row, as `outbox rejected` numbers it."
)
@click.option("--reason", required=True, help="Why; kept in stream.operator_action.")
@click.option("--execute", is_flag=True, help="Act; without it several are only listed.")
@database_options
def discard(
    config: Config, topic: str | None, keys: tuple[str, ...], ids: tuple[int, ...], reason: str, execute: bool
) -> None:
    """Delete rejected rows: their events are never published.

    One key or one id acts at once. The rows behind a discarded one stay rejected until they are retried.
    """
    if not (topic or keys or ids):
        raise UsageError("name what to discard: --key, --id or --topic", hint="stream outbox rejected")
    if not reason.strip():
        raise UsageError("--reason is empty")
    with migrated(config, SESSION) as connection:
        rows = views.rejected_rows(connection, topic=topic, keys=[typed_key(key) for key in keys], ids=ids)
        chosen = rejected.by_key(rows)
        if not chosen:
            raise StreamError("no rejected row fits", hint="stream outbox rejected")
        one = len(chosen) == 1 and len(keys) <= 1 and len(ids) <= 1 and (keys or ids)
        if not execute and not one:
            _print_plan(chosen, ["discard", *_given(topic, keys, ids), "--reason", reason])
            return
        for key in chosen:
            _discard_one(connection, key, reason)


def _print_status(found: views.OutboxStatus) -> None:
    oldest = "" if found.oldest_seconds is None else f", the oldest for {duration(found.oldest_seconds)}"
    click.echo(f"pending    {found.pending}{oldest}")
    click.echo(f"scheduled  {found.scheduled}")
    click.echo(f"rejected   {found.rejected}")
    for sick in found.sick_topics:
        click.echo(f"sick       {sick.topic} since {clock(sick.since)}: {printable(sick.reason)}")
    for relay in found.relays:
        since = f", since {clock(relay.since)}" if relay.since else ""
        click.echo(
            f"relay      {relay.shards} of {SHARDS} shards, session {relay.pid}"
            f" from {relay.client or 'a local socket'}{since}"
        )


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    if not rows:
        say(empty)
        return
    for line in columns(header, rows):
        click.echo(line)


def _rejected_cells(row: RejectedRow) -> tuple[str, ...]:
    return (
        str(row.id),
        row.topic,
        shown_key(row.key) or "-",
        row.type,
        row.reason,
        duration(row.age_seconds),
        printable(row.error),
    )


def _given(topic: str | None, keys: Sequence[str], ids: Sequence[int] = ()) -> list[str]:
    """The options that chose the rows, for the command that acts on them."""
    chosen = [("--topic", topic), *(("--key", key) for key in keys), *(("--id", str(id)) for id in ids)]
    return [word for name, value in chosen if value is not None for word in (name, value)]


def _print_plan(chosen: Sequence[RejectedKey], arguments: Sequence[str]) -> None:
    header = ("TOPIC", "KEY", "ROWS", "REASON", "ERROR")
    lines = [
        (
            key.topic,
            shown_key(key.key) or "-",
            str(len(key.rows)),
            key.rows[0].reason,
            printable(key.rows[0].error),
        )
        for key in chosen
    ]
    _print_table(header, lines, "")
    say(f"nothing was changed yet\n-> stream outbox {shlex.join(arguments)} --execute")


def _retry_each(connection: Connection, chosen: Sequence[RejectedKey]) -> None:
    """Each key in a transaction of its own; raises PartlyDone naming those that could not be."""
    problems = []
    for key in chosen:
        if key.key is None:
            problems.append(f"{key.name}: rows without a key can only be discarded")
            continue
        try:
            count = rejected.retry(connection, key)
        except Refused as error:
            if len(chosen) == 1:
                raise
            problems.append(str(error))
            continue
        say(f"{key.name}: {plural(count, 'row')} back in the outbox")
    if problems:
        raise PartlyDone("\n".join(problems), hint="stream outbox rejected")
    say("-> stream outbox status")


def _discard_one(connection: Connection, key: RejectedKey, reason: str) -> None:
    gone = rejected.discard(connection, key, reason)
    types = ", ".join(f"{row.type} {row.event_id}" for row in key.rows if row.id in gone)
    say(f"{key.name}: {plural(len(gone), 'row')} discarded: {types}")
    if key.key is None:
        return
    left = views.rejected_rows(connection, topic=key.topic, keys=[key.key])
    if left:
        say(f"{plural(len(left), 'row')} of this key left\n-> {key.command('retry')}")
