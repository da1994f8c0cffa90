"""The replay of many letters: its plan, how far it has come, and the command that goes on with it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import psycopg

from stream.cli.choosing import words
from stream.cli.common import Ticker, say
from stream.cli.holds import say_holds
from stream.cli.signals import Stopper
from stream.cli.text import plural
from stream.database import Connection
from stream.errors import PartlyDone
from stream.holds import held_groups
from stream.letters import Choice, Which
from stream.replays import MOST_REPLAYS, Replaying

MOST_NAMED = 20  # problems


@dataclass(frozen=True)
class Many:
    """Letters that are replayed in one go, and the command that does it, or goes on with it."""

    which: Which
    choice: Choice
    most: int | None
    rate: float
    most_replays: int

    def say_plan(self, connection: Connection) -> None:
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
        say_holds(held_groups(connection, self._groups))
        say(f"nothing was changed yet\n-> {self._command(self.most)}")

    def replay(self, connection: Connection) -> None:
        """Raises PartlyDone, with the command that goes on, where letters are left."""
        stopper = Stopper("finishing the letter in hand")
        total = len(self.choice.letters)
        ids = [one.id for one in self.choice.letters]
        telling = Telling(total)
        run = Replaying(
            connection, ids, self.choice.up_to, self.rate, most_replays=self.most_replays, tell=telling
        )
        stopper.stop = run.stopping.set
        lost = None
        try:
            run.run()
        except psycopg.OperationalError as error:
            lost = f"the connection was lost: {' '.join(str(error).split())}"
        holds = {} if lost else held_groups(connection, self._groups)
        telling.end(run, held=bool(holds))
        for problem in run.problems[:MOST_NAMED]:
            say(problem)
        say_holds(holds)
        left = total - run.passed + len(run.problems)
        if left:
            why = lost or ("stopped" if run.passed < total else "a key could not be locked")
            hint = self._command(None if self.most is None else left)
            raise PartlyDone(f"{why}; {left:,} of {plural(total, 'letter')} left", hint=hint)
        say(
            f"-> stream dlq list{f' --group {shlex.quote(min(self._groups))}' if len(self._groups) == 1 else ''}"
        )

    @property
    def _groups(self) -> set[str]:
        return {one.group for one in self.choice.letters}

    def _command(self, most: int | None) -> str:
        options = words(self.which)
        if most is not None:
            options += ["--max", str(most)]
        if self.most_replays != MOST_REPLAYS:
            options += ["--most-replays", str(self.most_replays)]
        return f"stream dlq replay {shlex.join(options)} --rate {self.rate:g}/s --execute"


class Telling:
    """Says how far a run has come."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._ticker = Ticker()

    def __call__(self, run: Replaying) -> None:
        self._ticker.tick(self._line(run))

    def end(self, run: Replaying, *, held: bool) -> None:
        """The last word: replayed is not yet applied."""
        line = self._line(run)
        if run.acts.get("replayed"):
            when = "once their group goes on" if held else "now"
            line += f": they run again {when}; what dies again is a new letter"
        self._ticker.end(line)

    def _line(self, run: Replaying) -> str:
        parts = [f"{count:,} {result}" for result, count in run.acts.items()] or ["0 replayed"]
        again = [f"{run.died_again:,} died again"] if run.died_again else []
        return f"{', '.join(parts + again)}, of {self._total:,}"
