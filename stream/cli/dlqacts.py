"""`stream dlq replay` and `stream dlq discard`: one letter at once, several after a plan."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import click

from stream import letters, replays
from stream.cli.choosing import LetterId, letter_options, per_second, words
from stream.cli.common import database_options, say
from stream.cli.holds import say_holds
from stream.cli.migrated import opened_for
from stream.cli.replaying import MOST_NAMED, Many
from stream.cli.text import columns, plural, printable
from stream.config import Config
from stream.database import Connection
from stream.errors import PartlyDone, Refused, UsageError
from stream.holds import held_groups
from stream.keys import HEX, shown_key
from stream.letters import Choice, LetterDetails, Which
from stream.replays import MOST_REPLAYS, Act, name_of

ids_argument = click.argument("ids", type=LetterId(), nargs=-1, metavar="[ID]...")
up_to_option = click.option(
    "--up-to", type=click.IntRange(0), metavar="ID", help="No letter younger than this one; plans name it."
)
max_option = click.option("--max", "most", type=click.IntRange(1), help="At most so many letters.")
execute_option = click.option("--execute", is_flag=True, help="Act; without it several are only counted.")


@click.command(
    short_help="Run letters again, in the group that gave them up.",
    epilog="Example:  stream dlq replay --group email --error-class SMTPDataError --rate 50/s --execute",
)
@ids_argument
@letter_options
@up_to_option
@max_option
@click.option(
    "--rate",
    callback=per_second,
    default="50/s",
    show_default=True,
    metavar="RATE",
    help="At most so many letters a second.",
)
@click.option(
    "--most-replays",
    type=click.IntRange(1),
    default=MOST_REPLAYS,
    show_default=True,
    help="Leave out what was replayed so often before.",
)
@execute_option
@database_options
def replay(
    config: Config,
    ids: tuple[int, ...],
    which: Which,
    up_to: int | None,
    most: int | None,
    rate: float,
    most_replays: int,
    execute: bool,
) -> None:
    """Run letters again, with no attempt counted, in the group that gave them up and in no other.

    One id acts at once; several, or filters, are counted first. What dies from now on is not among them. Each letter
    is a transaction: Ctrl-C stops between two, and the command that is then printed goes on.
    """
    chosen = _chosen(which, ids, up_to)
    if len(ids) == 1 and not which.says_something:
        with opened(config, which) as connection:
            act = replays.replay(connection, ids[0], most_replays=most_replays)
            _say_replayed(act)
            if act.result == "replayed":
                say_holds(held_groups(connection, [act.letter.group]))
                say(f"-> {_life_command(act.letter)}")
        return
    with opened(config, which) as connection:
        choice = letters.choose(connection, chosen, most_replays=most_replays)
        _say_left_out(connection, choice, ids, most_replays)
        choice = choice.first(most)
        if not choice.letters:
            return
        many = Many(replace(chosen, up_to=choice.up_to), choice, most, rate, most_replays)
        if execute:
            many.replay(connection)
        else:
            _print_plan(choice)
            many.say_plan(connection)


@click.command(
    short_help="Close letters: their events never run.",
    epilog="Example:  stream dlq discard 41 --reason 'a test order'",
)
@ids_argument
@letter_options
@up_to_option
@max_option
@click.option("--reason", required=True, help="Why; kept in stream.operator_action.")
@execute_option
@database_options
def discard(
    config: Config,
    ids: tuple[int, ...],
    which: Which,
    up_to: int | None,
    most: int | None,
    reason: str,
    execute: bool,
) -> None:
    """Close letters for good: their events never run. A key that is held by one of them goes on.

    One id acts at once; several, or filters, are counted first.
    """
    if not reason.strip():
        raise UsageError("--reason is empty")
    chosen = _chosen(which, ids, up_to)
    with opened(config, which) as connection:
        if len(ids) == 1 and not which.says_something:
            _say_discarded(replays.discard(connection, ids[0], reason))
            return
        choice = letters.choose(connection, chosen)
        _say_left_out(connection, choice, ids, None)
        choice = choice.first(most)
        if not choice.letters:
            return
        if not execute:
            _print_plan(choice)
            again = words(replace(chosen, up_to=choice.up_to)) + (["--max", str(most)] if most else [])
            arguments = shlex.join([*again, "--reason", reason])
            say(f"nothing was changed yet\n-> stream dlq discard {arguments} --execute")
            return
        _discard_all(connection, choice, reason)


def opened(config: Config, which: Which) -> AbstractContextManager[Connection]:
    """A connection, once the group that is chosen, if one is, is known."""
    return opened_for(config, "stream-dlq", which.group)


def _chosen(which: Which, ids: tuple[int, ...], up_to: int | None) -> Which:
    chosen = replace(which, ids=ids, up_to=up_to)
    if not chosen.says_something:
        raise UsageError("name what to act on: ids, or a filter such as --group", hint="stream dlq list")
    return chosen


# -- one letter -------------------------------------------------------------------------------------------------------


def _say_replayed(act: Act) -> None:
    letter = act.letter
    _refuse_closed(act)
    if act.result == "worn out":
        hint = f"stream dlq replay {letter.id} --most-replays {letter.replays + 1}"
        raise Refused(f"{name_of(letter)}: {act.reason}", hint=hint)
    if act.result == "superseded":
        freed = "; the key that it held goes on" if act.freed else ""
        say(f"{name_of(letter)}: {act.reason}; the letter is closed as superseded{freed}")
        return
    order = "before what waits behind it"
    if not letter.held:
        order = "after its key went on without it: later events of the key may have been applied already"
    say(f"{name_of(letter)}: {_type(letter)} runs again, {order}")


def _life_command(letter: LetterDetails) -> str:
    """What shows how a replayed event fares: its key's life, where the key can be typed as it is."""
    key = None if letter.key is None else shown_key(letter.key)
    if key is None or key.startswith((HEX, "-")):
        return f"stream dlq list --group {shlex.quote(letter.group)}"
    return f"stream order show {shlex.quote(key)}"


def _say_discarded(act: Act) -> None:
    _refuse_closed(act)
    freed = ""
    if act.freed:
        freed = f"; its key goes on, with {plural(act.letter.followers, 'event')} behind it"
    say(f"{name_of(act.letter)}: discarded, {_type(act.letter)} never runs{freed}")


def _type(letter: LetterDetails) -> str:
    return printable(letter.type or "the event", 80)


def _refuse_closed(act: Act) -> None:
    letter = act.letter
    if act.result != "closed":
        return
    if letter.newer is not None:
        reason = f"{act.reason}, and died again: letter {letter.newer}"
        raise Refused(f"{name_of(letter)}: {reason}", hint=f"stream dlq show {letter.newer}")
    raise Refused(f"{name_of(letter)}: {act.reason}", hint=f"stream dlq show {letter.id}")


# -- several ----------------------------------------------------------------------------------------------------------


def _say_left_out(
    connection: Connection, choice: Choice, ids: tuple[int, ...], most_replays: int | None
) -> None:
    """What was named, or fits, and is not acted on. Raises Refused where letters were named and none is left."""
    if choice.worn_out:
        say(
            f"left out: {plural(len(choice.worn_out), 'letter')} replayed {most_replays} times or more before"
        )
    found = {letter.id for letter in (*choice.letters, *choice.worn_out)}
    out = _why_not(connection, [id for id in dict.fromkeys(ids) if id not in found])
    if ids and not choice.letters:
        raise Refused(f"none of these letters can be acted on{': ' * bool(out)}{out}", hint="stream dlq list")
    if out:
        say(f"left out: {out}")
    if not choice.letters:
        say("no open letter fits")


def _why_not(connection: Connection, ids: Sequence[int]) -> str:
    """Of letters that were named and not chosen: `4 (replayed already); 7 (does not fit); 99 (no such letter)`."""
    if not ids:
        return ""
    status = {letter.id: letter.status for letter in letters.each(connection, Which(ids=ids, status=None))}
    reasons: dict[str, list[str]] = {}
    for id in ids:
        known = status.get(id, "no such letter")
        reason = "does not fit" if known == "open" else known if id not in status else f"{known} already"
        reasons.setdefault(reason, []).append(str(id))
    return "; ".join(f"{', '.join(of)} ({reason})" for reason, of in reasons.items())


def _print_plan(choice: Choice) -> None:
    counts = Counter((one.group, one.fingerprint, one.kind, one.error_class) for one in choice.letters)
    lines = [(*(printable(text) for text in alike), str(count)) for alike, count in counts.most_common()]
    for line in columns(("GROUP", "FINGERPRINT", "KIND", "ERROR", "LETTERS"), lines):
        click.echo(line)
    letters_, keys = plural(len(choice.letters), "letter"), plural(choice.keys(), "key")
    say(f"{letters_} of {keys}, up to letter {choice.up_to}")


def _discard_all(connection: Connection, choice: Choice, reason: str) -> None:
    done: Counter[str] = Counter()
    problems = []
    for one in choice.letters:
        try:
            done[replays.discard(connection, one.id, reason).result] += 1
        except Refused as error:
            problems.append(error.message)
    say(", ".join(f"{count:,} {result}" for result, count in done.items()) or "nothing discarded")
    if problems:
        raise PartlyDone("\n".join(problems[:MOST_NAMED]), hint="stream dlq list")
