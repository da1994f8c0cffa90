"""`stream groups`: how the groups stand, what holds them, and holding them oneself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click

from stream import adopting, holds, overview
from stream.cli.choosing import span, time
from stream.cli.common import config_options, format_option, print_json, say
from stream.cli.groupstext import details_form, json_form, print_details, print_groups, words
from stream.cli.opened import opened
from stream.cli.text import plural
from stream.config import Config
from stream.errors import Unreachable, UsageError
from stream.verdicts import GroupSummary
from stream.views import clock

SESSION = "stream-groups"


@click.group(
    "groups",
    short_help="How the groups stand; pause and resume them.",
    epilog="Example:  stream groups list",
)
def groups() -> None:
    """How the consumer groups stand, what holds them, and holding them oneself."""


@groups.command(
    "list", short_help="Each group in one line.", epilog="Example:  stream groups list --format json"
)
@format_option("text", "json")
@config_options
def list_groups(config: Config, format_: str) -> None:
    """Each group: whether it runs, how far it is behind, what waits, what died, and what is wrong.

    BEHIND is the age of the first record that the group has not finished. The verdict knows no thresholds: STOPPED,
    nobody reads what waits; STALLED, a partition has not moved for a minute and a half; FALLING BEHIND, its lag grew
    all that time; KEYS HELD, keys wait for you; HALTED, PAUSED, BREAKER OPEN, nothing starts. Without the broker all
    but the lag is shown, and the exit code is 3.
    """
    with opened(config, SESSION) as (connection, known):
        found, problem = overview.summaries(config, connection, known)
    if format_ == "json":
        print_json([json_form(one) for one in found])
    elif found:
        print_groups(found)
    else:
        say("there are no groups")
    for one in found:
        _say_next(one.commands)
    _check(problem)


@groups.command(short_help="One group, with its partitions.", epilog="Example:  stream groups describe email")
@click.argument("name")
@format_option("text", "json")
@config_options
def describe(config: Config, name: str, format_: str) -> None:
    """One group: what holds it and since when, its partitions, its processes, and what to type next.

    IN and OUT are records a second over the last half minute, from the looks that the group's processes write down
    every ten seconds; where there are none, two looks are taken, two seconds apart. DRAINED is when the lag is gone if
    both go on so; "growing" where it will not be. BLOCKED BY is what keeps the oldest unfinished record of a partition
    from being finished: a key that is parked or held, or whose handler has been at work for long, or, in brackets, what
    holds the group. While a group has not worked off what was there at its first start, `history` says how much of it
    is left, and how fast the group's file lets it go (catch_up_rate).
    """
    with opened(config, SESSION) as (connection, known):
        known.require(name, "stream groups describe")
        found, problem = overview.details(config, connection, known, name)
    if format_ == "json":
        print_json(details_form(found))
    else:
        print_details(found)
    _say_next(_next(found.summary))
    _check(problem)


@groups.command(
    short_help="Let nothing of a group start.",
    epilog="Example:  stream groups pause email --reason 'the provider asked us to' --for 30m",
)
@click.argument("name")
@click.option("--reason", required=True, help="Why; shown wherever the group is.")
@click.option("--for", "how_long", callback=span, metavar="SPAN", help="The pause ends then: 30m, 2h, 1d.")
@click.option(
    "--until", callback=time, metavar="TIME", help="The pause ends then: 2026-08-02T14:00, UTC if no zone."
)
@config_options
def pause(config: Config, name: str, reason: str, how_long: timedelta | None, until: datetime | None) -> None:
    """Let no process of a group start anything, until a time or until it is resumed.

    What has started is finished. The pause outlives every restart; one that is there already is replaced.
    """
    if not reason.strip():
        raise UsageError("--reason is empty")
    with opened(config, SESSION) as (connection, known):
        known.require(name, "stream groups pause --reason '...'")
        end = _end(how_long, until)
        before = holds.pause(connection, name, reason, end)
    say(
        f"{name}: {'paused' if end is None else f'paused until {clock(end)}'}: nothing starts, from within a second on"
    )
    for held in before:
        old = f"it was paused already ({words(held)}): this takes its place"
        say(old if held.by == "paused" else f"it is {held.by} too: {words(held)}")
    _say_next([f"stream groups resume {name}"])


@groups.command(
    short_help="Lift whatever holds a group.", epilog="Example:  stream groups resume email --reason 'mended'"
)
@click.argument("name")
@click.option("--reason", help="Why; kept in stream.operator_action.")
@config_options
def resume(config: Config, name: str, reason: str | None) -> None:
    """Lift whatever holds a group: a pause, a halt, an open breaker. Its processes go on within about a second.

    They count failures anew: where the cause is still there, the group is held again, a halted one after as many dead
    letters more. A halt whose cause is mended lifts itself at its next try.
    """
    with opened(config, SESSION) as (connection, known):
        known.require(name, "stream groups resume")
        before = holds.resume(connection, name, reason)
    if not before:
        say(f"{name}: nothing holds it")
    for held in before:
        what = {"paused": "the pause", "halted": "the halt", "breaker open": "the open breaker"}[held.by]
        say(f"{name}: {what} is lifted ({words(held)})")
    _say_next([f"stream groups describe {name}"])


@groups.command(
    short_help="Go on with a topic that was created again.",
    epilog="Example:  stream groups adopt email --topic orders --to-latest --reason 'moved to the new cluster'",
)
@click.argument("name")
@click.option("--topic", required=True, help="The topic that was deleted and created again.")
@click.option("--to-earliest", "place", flag_value="earliest", help="Begin at its first records.")
@click.option(
    "--to-latest", "place", flag_value="latest", help="Begin at its ends: what is in it is not read."
)
@click.option("--reason", help="Why; kept in stream.operator_action.")
@config_options
def adopt(config: Config, name: str, topic: str, place: str | None, reason: str | None) -> None:
    """Let a group go on with a topic that was deleted and created again under it.

    Its old offsets mean nothing there, so the group refuses to start until somebody says where it begins. What the
    ledger knows stays known: an event that comes again under its old id is not applied again.
    """
    if place is None:
        raise UsageError("say where the group begins: --to-earliest or --to-latest")
    with opened(config, SESSION) as (connection, known):
        known.require(name, "stream groups describe")
        earliest = place == "earliest"
        done = adopting.adopt(config, connection, known, name, topic, earliest=earliest, reason=reason)
    say(f"{name}: begins at the {place} offsets of {topic}; {plural(done.records, 'record')} to read")
    if done.parked:
        say(f"{plural(done.parked, 'event')} of the old topic are parked still, and run once the group does")
    _say_next([f"stream consume --group {name}"])


def _end(how_long: timedelta | None, until: datetime | None) -> datetime | None:
    if how_long is not None and until is not None:
        raise UsageError("--for and --until say the same thing; give one of them")
    if until is not None and until <= datetime.now(UTC):
        raise UsageError(f"--until {clock(until)} has passed")
    return until if how_long is None else datetime.now(UTC) + how_long


def _check(problem: Unreachable | None) -> None:
    if problem is not None:
        raise problem


def _say_next(commands: Sequence[str]) -> None:
    for command in commands:
        say(f"-> {command}")


def _next(one: GroupSummary) -> list[str]:
    looks = [f"stream parked list --group {one.group}"] if one.held else []
    looks += [f"stream dlq list --group {one.group}"] if one.dead else []
    here = f"stream groups describe {one.group}"
    return list(dict.fromkeys([*looks, *(command for command in one.commands if command != here)]))
