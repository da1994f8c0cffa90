"""`stream parked`: keys that wait, for their next try or for a person."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from stream import parked
from stream.cli.common import database_options, format_option, print_json, say
from stream.cli.holds import say_holds
from stream.cli.keyoptions import WhichKeys, group_option, key_option, key_options, topic_option
from stream.cli.migrated import opened_for
from stream.cli.text import columns, duration, plural, printable
from stream.config import Config
from stream.database import Connection
from stream.errors import PartlyDone, Refused, StreamError, UsageError
from stream.holds import held_groups
from stream.keys import shown_key, typed_key
from stream.parked import ParkedKey
from stream.views import as_json, clock

SESSION = "stream-parked"


@click.group(
    "parked",
    short_help="Keys that wait for a next try, or for you.",
    epilog="""\b
Examples:
  stream parked list
  stream parked retry --key 536365""",
)
def parked_keys() -> None:
    """Keys whose events wait: for the next try of one that failed, or, held, for an operator.

    \b
    waiting   tried again by itself at NEXT TRY, later events of the key behind it
              at once:                        stream parked retry
    held      its first event is dead: it was given up, and nothing behind it runs
              once the cause is mended:       stream dlq replay
              on without it, order broken:    stream parked release
    either    given up for good:              stream parked discard
    """


@parked_keys.command(
    "list",
    short_help="Which keys wait, since when, and why.",
    epilog="Example:  stream parked list --group invoicing",
)
@group_option
@topic_option
@key_option
@format_option("text", "json")
@database_options
def list_keys(config: Config, group: str | None, topic: str | None, key: str | None, format_: str) -> None:
    """Each key that waits: since when, why, how many events behind it, when it is tried next."""
    with opened_for(config, SESSION, group) as connection:
        found = parked.keys(connection, group=group, topic=topic, key=None if key is None else typed_key(key))
        asked = () if group is None else (group,)
        holds = held_groups(connection, [*asked, *(one.group for one in found)])
    if format_ == "json":
        print_json([json_form(one) for one in found])
    elif not found:
        say("nothing is parked")
    else:
        _print_table(found)
    say_holds(holds)
    held = next((one for one in found if one.held), None)
    if held is not None:
        if held.letter is not None:
            say(f"-> stream dlq show {held.letter}\n-> stream dlq replay {held.letter}")
        say(f"-> {held.command('release')}\n-> {held.command('discard')}")
    waits = next((one for one in found if not one.held), None)
    if waits is not None:
        say(f"-> {waits.command('retry')}")


@parked_keys.command(
    short_help="Try waiting keys now, not at their time.",
    epilog="""\b
Examples:
  stream parked retry --group email --key 536365
  stream parked retry --group email --execute""",
)
@key_options
def retry(config: Config, which: WhichKeys, execute: bool) -> None:
    """Try waiting keys now, and not at their time. The try counts as any other, and its event may wait again after it.

    One key, by --key or --partition, acts at once. A held key's event is dead: stream dlq replay.
    """
    _act(config, which, execute, ["retry"], parked.retry, _retried, held=False)


@parked_keys.command(
    short_help="Let held keys go on without their dead event.",
    epilog="Example:  stream parked release --group invoicing --key 536365",
)
@key_options
def release(config: Config, which: WhichKeys, execute: bool) -> None:
    """Let held keys go on without their dead event: later events of the key are applied and it is not.

    This repairs nothing. To run the dead event again, in its place: stream dlq replay. Its letter stays open and can be
    replayed later, out of order then. One key, by --key or --partition, acts at once.
    """
    _act(config, which, execute, ["release"], parked.release, _released, held=True)


@parked_keys.command(
    short_help="Give up the first event of keys.",
    epilog="Example:  stream parked discard --group invoicing --key 536365 --reason 'a test order'",
)
@click.option("--reason", required=True, help="Why; kept in stream.operator_action.")
@key_options
def discard(config: Config, which: WhichKeys, execute: bool, reason: str) -> None:
    """Give up the first event of a key for good; what stands behind it goes on.

    A dead one's letter is closed; one that would be tried again counts as skipped. One key acts at once.
    """
    if not reason.strip():
        raise UsageError("--reason is empty")
    if not (which.one or which.group or which.topic):
        raise UsageError("name what to discard: --key, --group or --topic", hint="stream parked list")
    words = ["discard", "--reason", reason]
    act = functools.partial(parked.discard, reason=reason)
    _act(config, which, execute, words, act, _discarded)


def json_form(key: ParkedKey) -> dict[str, Any]:
    """The public JSON of `parked list`."""
    found = as_json(key)
    found["next_try_at"] = found.pop("due_at")
    del found["epoch"], found["held"]
    return {"state": key.state, **found}


def _act(
    config: Config,
    which: WhichKeys,
    execute: bool,
    words: Sequence[str],
    act: Callable[[Connection, ParkedKey], ParkedKey],
    tell: Callable[[ParkedKey], None],
    *,
    held: bool | None = None,
) -> None:
    """Act on the one key that is named; on several when told to, of those that are `held` or, False, are not.

    `words`: the command, as it is printed to be typed next.
    """
    with opened_for(config, SESSION, which.group) as connection:
        found = parked.keys(connection, **which.filters)
        chosen = [each for each in found if which.one or held in (None, each.held)]
        if not chosen:
            none = {True: "no key is held", False: "no key waits", None: "nothing is parked"}
            _nothing(which.one, none[held])
            return
        if not execute and not (which.one and len(chosen) == 1):
            _print_plan(chosen, [*words, *which.words])
            return
        _each(chosen, lambda key: tell(act(connection, key)))
        say_holds(held_groups(connection, [each.group for each in chosen]))


def _nothing(named: bool, text: str) -> None:
    if named:
        raise StreamError("no such key is parked", hint="stream parked list")
    say(text)


def _print_table(found: Sequence[ParkedKey]) -> None:
    now = datetime.now(UTC)
    header = ("GROUP", "TOPIC", "KEY", "STATE", "SINCE", "FOR", "FOLLOWERS", "ATTEMPTS", "NEXT TRY", "WHY")
    for line in columns(header, [_cells(one, now) for one in found]):
        click.echo(line)


def _cells(one: ParkedKey, now: datetime) -> tuple[str, ...]:
    key = printable(shown_key(one.key) or f"(none, partition {one.partition})", 80)
    why = printable(f"{one.error_class}: {one.error_message}", 120) if one.error_class else "-"
    next_try = "-" if one.due_at is None or one.held else clock(one.due_at)
    waits = duration(max(0.0, (now - one.since).total_seconds()))
    counts = (str(one.followers), str(one.attempts))
    return (one.group, one.topic, key, one.state, clock(one.since), waits, *counts, next_try, why)


def _print_plan(chosen: Sequence[ParkedKey], arguments: Sequence[str]) -> None:
    _print_table(chosen)
    say(
        f"{plural(len(chosen), 'key')}; nothing was changed yet\n"
        f"-> stream parked {shlex.join(arguments)} --execute"
    )


def _each(chosen: Sequence[ParkedKey], act: Callable[[ParkedKey], None]) -> None:
    """Each key in a transaction of its own; raises PartlyDone naming those that could not be."""
    problems = []
    for key in chosen:
        try:
            act(key)
        except Refused as error:
            if len(chosen) == 1:
                raise
            problems.append(error.message)
    if problems:
        raise PartlyDone("\n".join(problems), hint="stream parked list")


def _retried(key: ParkedKey) -> None:
    say(f"{key.name}: {_type(key)} is called\n-> {key.list_command}")


def _released(key: ParkedKey) -> None:
    say(f"{key.name}: {_type(key)} is out of the way; {_behind(key)}")
    if key.letter is not None:
        say(f"its letter stays open\n-> stream dlq show {key.letter}")


def _discarded(key: ParkedKey) -> None:
    what = "its letter is closed" if key.letter is not None else "its letter was closed before"
    if not key.held:
        what = "it counts as skipped"
    say(f"{key.name}: {_type(key)} is given up, {what}; {_behind(key)}")


def _type(key: ParkedKey) -> str:
    return f"{printable(key.type or 'the event', 80)} {key.event_id}"


def _behind(key: ParkedKey) -> str:
    return f"{plural(key.followers, 'event')} behind it {'goes' if key.followers == 1 else 'go'} on"
