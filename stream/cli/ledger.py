"""`stream ledger`: what the groups remember of the events they applied."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click
import psycopg

from stream import pruning
from stream.cli.choosing import span, span_words
from stream.cli.common import Ticker, config_options, format_option, print_json, say
from stream.cli.opened import opened
from stream.cli.signals import Stopper
from stream.cli.text import columns, plural
from stream.config import Config
from stream.errors import PartlyDone
from stream.pruning import OldRows, Pruning
from stream.views import clock, rfc3339


@click.group(
    short_help="What the groups remember of events they applied.",
    epilog="Example:  stream ledger prune --older-than 400d",
)
def ledger() -> None:
    """What the groups remember of the events they applied: why each is applied once."""


@ledger.command(
    short_help="Delete what no rewind can need.",
    epilog="Example:  stream ledger prune --older-than 400d --execute",
)
@click.option(
    "--older-than", required=True, callback=span, metavar="SPAN", help="Rows of that age and older: 400d."
)
@click.option("--group", metavar="NAME", help="Only rows of this consumer group.")
@click.option("--execute", is_flag=True, help="Act; without it rows are only counted.")
@format_option("text", "json")
@config_options
def prune(config: Config, older_than: timedelta, group: str | None, execute: bool, format_: str) -> None:
    """Delete ledger rows of events that cannot be read again, some thousand a transaction; Ctrl-C stops between two.

    Refused, with exit code 4, where rows are needed: a topic of the group still holds records from then, as retention
    has not taken them, or their events are parked or have an open dead letter. From then on the group's horizon is
    that time. An event that is appended again under an id of its own from before it counts as new.
    """
    before = datetime.now(UTC) - older_than
    with opened(config, "stream-ledger") as (connection, known):
        if group is not None:
            known.require(group, f"stream ledger prune --older-than {span_words(older_than)} --group")
        found = pruning.plan(config, connection, known, before, group)
        if format_ == "json":
            print_json([json_form(one) for one in found])
        elif found:
            _print_table(found)
        if not found:
            say(f"the ledger has no rows from before {clock(before)}")
            return
        pruning.check_needs(found)
        again = f"stream ledger prune --older-than {span_words(older_than)}"
        again += "" if group is None else f" --group {shlex.quote(group)}"
        if execute:
            _delete(Pruning(connection, found, before), again)
        else:
            total = sum(one.rows for one in found)
            say(f"{total:,} from before {clock(before)}; nothing was changed yet\n-> {again} --execute")


def json_form(one: OldRows) -> dict[str, object]:
    """The public JSON of a group in `ledger prune`."""
    reason = None if one.need is None else one.need.reason
    return {"group": one.group, "rows": one.rows, "oldest_at": rfc3339(one.oldest_at), "needed": reason}


def _print_table(found: Sequence[OldRows]) -> None:
    lines = [
        (one.group, f"{one.rows:,}", clock(one.oldest_at), "-" if one.need is None else one.need.reason)
        for one in found
    ]
    for line in columns(("GROUP", "ROWS", "OLDEST", "NEEDED"), lines):
        click.echo(line)


def _delete(pruning: Pruning, again: str) -> None:
    """Raises PartlyDone, with the command that goes on, where it was stopped."""
    total = sum(one.rows for one in pruning.found)
    ticker = Ticker()
    pruning.tell = lambda run: ticker.tick(f"{run.deleted:,} of {total:,} rows deleted")
    Stopper("finishing the rows in hand").stop = pruning.stopping.set
    why = "stopped"
    try:
        pruning.run()
    except psycopg.OperationalError as error:
        why = f"the connection was lost: {' '.join(str(error).split())}"
    ticker.end(
        f"{plural(pruning.deleted, 'row')} deleted; the ledger remembers all since {clock(pruning.before)}"
    )
    if not pruning.complete:
        raise PartlyDone(f"{why}; older rows are left", hint=f"{again} --execute")
