"""`stream dlq replay` and `stream dlq discard`: one letter at once, several after a plan."""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import click
import psycopg

from stream import database, letters, replays
from stream.cli.choosing import letter_options, per_second, words
from stream.cli.common import config_options, say
from stream.cli.signals import Stopper
from stream.cli.text import columns, plural, printable
from stream.config import Config
from stream.database import Connection
from stream.errors import PartlyDone, Refused, UsageError
from stream.letters import Choice, Letter, Which
from stream.replays import MOST_REPLAYS, Act, Replaying, name_of

ids_argument = click.argument("ids", type=click.IntRange(1), nargs=-1, metavar="[ID]...")
up_to_option = click.option(
    "--up-to", type=click.IntRange(0), metavar="ID", help="No letter younger than this one; plans name it."
)
max_option = click.option("--max", "most", type=click.IntRange(1), help="At most so many letters.")
execute_option = click.option("--execute", is_flag=True, help="Act; without it several are only counted.")
SAY_EVERY_S = 5.0  # where there is no terminal
MOST_NAMED = 20


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
@config_options
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
        with opened(config) as connection:
            _say_replayed(replays.replay(connection, ids[0], most_replays=most_replays))
        return
    with opened(config) as connection:
        choice = letters.choose(connection, chosen, most_replays=most_replays)
        _say_left_out(choice, ids, most_replays)
        choice = choice.first(most)
        if not choice.letters:
            return
        many = Many(replace(chosen, up_to=choice.up_to), choice, most, rate, most_replays)
        if execute:
            many.replay(connection)
        else:
            _print_plan(choice)
            many.say_plan()


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
@config_options
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
    with opened(config) as connection:
        if len(ids) == 1 and not which.says_something:
            _say_discarded(replays.discard(connection, ids[0], reason))
            return
        choice = letters.choose(connection, chosen)
        _say_left_out(choice, ids, None)
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


@contextmanager
def opened(config: Config) -> Iterator[Connection]:
    with database.connect(config.database_url, application_name="stream-dlq", autocommit=True) as connection:
        database.require_migrated(connection)
        yield connection


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
    say(f"{name_of(letter)}: {_type(letter)} runs again, before what waits behind it")
    if letter.on_dead == "release":
        say("its key went on without it: later events of the key may have been applied already")
    say(f"-> stream parked list --group {letter.group}")


def _say_discarded(act: Act) -> None:
    _refuse_closed(act)
    freed = ""
    if act.freed:
        freed = f"; its key goes on, with {plural(act.letter.followers, 'event')} behind it"
    say(f"{name_of(act.letter)}: discarded, {_type(act.letter)} never runs{freed}")


def _type(letter: Letter) -> str:
    return printable(letter.type or "the event", 80)


def _refuse_closed(act: Act) -> None:
    if act.result == "closed":
        raise Refused(f"{name_of(act.letter)}: {act.reason}", hint=f"stream dlq show {act.letter.id}")


# -- several ----------------------------------------------------------------------------------------------------------


def _say_left_out(choice: Choice, ids: tuple[int, ...], most_replays: int | None) -> None:
    """What was named, or fits, and is not acted on. Raises Refused where letters were named and none is left."""
    if choice.worn_out:
        say(
            f"left out: {plural(len(choice.worn_out), 'letter')} replayed {most_replays} times or more before"
        )
    found = {letter.id for letter in (*choice.letters, *choice.worn_out)}
    closed = [str(id) for id in ids if id not in found]
    if ids and not choice.letters:
        raise Refused("none of these letters is open, and may be acted on", hint="stream dlq list")
    if closed:
        say(f"left out: not open, or not fitting: {', '.join(closed)}")
    if not choice.letters:
        say("no open letter fits")


def _print_plan(choice: Choice) -> None:
    counts = Counter((one.group, one.fingerprint, one.kind, one.error_class) for one in choice.letters)
    lines = [(*(printable(text) for text in alike), str(count)) for alike, count in counts.most_common()]
    for line in columns(("GROUP", "FINGERPRINT", "KIND", "ERROR", "LETTERS"), lines):
        click.echo(line)
    letters_, keys = plural(len(choice.letters), "letter"), plural(choice.keys(), "key")
    say(f"{letters_} of {keys}, up to letter {choice.up_to}")


@dataclass(frozen=True)
class Many:
    """Letters that are replayed in one go, and the command that does it, or goes on with it."""

    which: Which
    choice: Choice
    most: int | None
    rate: float
    most_replays: int

    def say_plan(self) -> None:
        """What is special about them, and the command that acts."""
        applied = sum(one.applied for one in self.choice.letters)
        if applied:
            say(
                f"{applied} of them: the effect is there already; they are closed as superseded, and do not run"
            )
        released = {(one.group, one.lane) for one in self.choice.letters if one.on_dead == "release"}
        if released:
            went = f"{plural(len(released), 'key')} went on without them"
            say(f"{went}: later events of these keys may have been applied already")
        say(f"nothing was changed yet\n-> {self._command(self.most)}")

    def replay(self, connection: Connection) -> None:
        """Raises PartlyDone, with the command that goes on, where letters are left."""
        stopper = Stopper("finishing the letter in hand")
        total = len(self.choice.letters)
        ids = [one.id for one in self.choice.letters]
        run = Replaying(
            connection, ids, self.choice.up_to, self.rate, most_replays=self.most_replays, tell=Telling(total)
        )
        stopper.stop = run.stopping.set
        lost = None
        try:
            run.run()
        except psycopg.OperationalError as error:
            lost = f"the connection was lost: {' '.join(str(error).split())}"
        say(f"{_tally(run)}, of {total:,}")
        for problem in run.problems[:MOST_NAMED]:
            say(problem)
        left = total - run.passed + len(run.problems)
        if left:
            why = lost or ("stopped" if run.passed < total else "a key could not be locked")
            hint = self._command(None if self.most is None else left)
            raise PartlyDone(f"{why}; {left:,} of {plural(total, 'letter')} left", hint=hint)
        say("-> stream dlq list" if run.died_again else "-> stream parked list")

    def _command(self, most: int | None) -> str:
        options = words(self.which)
        if most is not None:
            options += ["--max", str(most)]
        if self.most_replays != MOST_REPLAYS:
            options += ["--most-replays", str(self.most_replays)]
        return f"stream dlq replay {shlex.join(options)} --rate {self.rate:g}/s --execute"


class Telling:
    """Says how far a run has come: on a terminal in one line, elsewhere now and then."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._terminal = sys.stderr.isatty()
        self._said = time.monotonic()

    def __call__(self, run: Replaying) -> None:
        if self._terminal:
            click.echo(f"\r{_tally(run)}, of {self._total:,} ", err=True, nl=False)
        elif time.monotonic() - self._said >= SAY_EVERY_S:
            self._said = time.monotonic()
            say(f"{_tally(run)}, of {self._total:,}")


def _tally(run: Replaying) -> str:
    parts = [f"{count:,} {result}" for result, count in run.acts.items()] or ["0 replayed"]
    again = [f"{run.died_again:,} died again"] if run.died_again else []
    return ", ".join(parts + again)


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
