"""`stream dlq`: what groups gave up."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace

import click

from stream import letters
from stream.cli.choosing import LetterId, letter_options, words
from stream.cli.common import database_options, format_option, print_json, project_of, say
from stream.cli.dlqacts import discard, opened, replay
from stream.cli.holds import say_holds
from stream.cli.lettertext import page
from stream.cli.text import columns, printable
from stream.config import Config
from stream.errors import UsageError
from stream.holds import held_groups
from stream.keys import shown_key
from stream.letters import STATUSES, Letter, LetterGroup, Which
from stream.views import clock


@click.group(
    short_help="Dead letters: what groups gave up.", epilog="Example:  stream dlq list --group invoicing"
)
def dlq() -> None:
    """Dead letters: events that a group gave up, and why; to be run again, or closed."""


@dlq.command(
    "list",
    short_help="What failed, by what failed alike.",
    epilog="Example:  stream dlq list --group email --since 2h",
)
@letter_options
@click.option(
    "--all", "each", is_flag=True, help="Each letter instead, also those that are not open any more."
)
@click.option("--status", type=click.Choice(STATUSES), help="With --all: only letters that are this.")
@format_option("text", "json")
@database_options
def list_letters(config: Config, which: Which, each: bool, status: str | None, format_: str) -> None:
    """Open dead letters by group and by what failed alike: the error, the stage, and the place in your code."""
    if status is not None and not each:
        again = shlex.join([*words(which), "--all", "--status", status])
        raise UsageError("--status goes with --all", hint=f"stream dlq list {again}")
    with opened(config, which) as connection:
        found: Sequence[Letter] | Sequence[LetterGroup]
        if each:
            found = letters.each(connection, replace(which, status=status))
        else:
            found = letters.groups(connection, which)
        asked = () if which.group is None else (which.group,)
        holds = held_groups(connection, [*asked, *(one.group for one in found)])
    if format_ == "json":
        print_json([letters.contract_form(one) for one in found])
    elif not found:
        say("no dead letter fits" if which.says_something or each else "there are no dead letters")
    else:
        for line in _table(found):
            click.echo(line)
    say_holds(holds)
    _say_next(found)


@dlq.command(short_help="One letter, with all that is known of it.", epilog="Example:  stream dlq show 41")
@click.argument("id", type=LetterId())
@click.option("--stack", "whole", is_flag=True, help="The whole stack, with the frames that are not yours.")
@format_option("text", "json")
@database_options
def show(config: Config, id: int, whole: bool, format_: str) -> None:
    """One letter: its tries, the newest first, the error, headers and payload, and where it comes from."""
    codec = project_of(config).codec
    with opened(config, Which()) as connection:
        found = letters.one(connection, id)
    if format_ == "json":
        print_json(letters.details_form(found, codec))
    else:
        for line in page(found, letters.decoded(found, codec), whole=whole):
            click.echo(line)
    if found.newer is not None:
        say(f"-> stream dlq show {found.newer}")
    if found.status == "open":
        say(f"-> stream dlq replay {id}\n-> stream dlq discard {id} --reason '...'")


@dlq.command(
    short_help="Letters as JSON lines, for other tools.",
    epilog="Example:  stream dlq export --group invoicing > letters.jsonl",
)
@letter_options
@click.option(
    "--status",
    type=click.Choice((*STATUSES, "any")),
    default="open",
    show_default=True,
    help="Which letters.",
)
@database_options
def export(config: Config, which: Which, status: str) -> None:
    """Letters with all that is known of them, one JSON object a line, and nothing else on stdout."""
    codec = project_of(config).codec
    with opened(config, which) as connection:
        for found in letters.details(connection, replace(which, status=None if status == "any" else status)):
            click.echo(json.dumps(letters.details_form(found, codec), ensure_ascii=False, default=str))


dlq.add_command(replay)
dlq.add_command(discard)


def _table(found: Sequence[Letter | LetterGroup]) -> list[str]:
    """The lines of a table of either."""
    rows = [_cells(one) for one in found]
    if isinstance(found[0], LetterGroup):
        return columns(
            ("GROUP", "FINGERPRINT", "KIND", "STAGE", "ERROR", "COUNT", "FIRST", "LAST", "SAMPLE"), rows
        )
    return columns(
        ("ID", "GROUP", "TYPE", "KEY", "POSITION", "KIND", "ATTEMPTS", "LAST", "STATUS", "ERROR"), rows
    )


def _cells(one: Letter | LetterGroup) -> tuple[str, ...]:
    if isinstance(one, LetterGroup):
        times = (clock(one.first_at), clock(one.last_at))
        what = (one.group, one.fingerprint, one.kind, one.stage, printable(one.error_class), str(one.count))
        return (*what, *times, printable(one.sample, 80))
    key = printable(shown_key(one.key) or "-", 80)
    event = (str(one.id), one.group, printable(one.type or "-", 80), key, one.position)
    error = printable(f"{one.error_class}: {one.error_message}", 120)
    return (*event, one.kind, str(one.attempts), clock(one.last_failed_at), one.status, error)


def _say_next(found: Sequence[Letter | LetterGroup]) -> None:
    """What to type about the first of them."""
    for one in found:
        if isinstance(one, LetterGroup):
            again = f"--group {one.group} --fingerprint {one.fingerprint}"
            say(f"-> stream dlq show {one.newest}\n-> stream dlq replay {again}")
            return
        if one.status == "open":
            say(f"-> stream dlq show {one.id}")
            return
