"""Replays: dead letters given back to the group that gave them up, or given up for good. By people, one by one.

replay    the event's `dead` in the ledger is undone, its parked row is back in its old place, as if never tried
discard   the letter is closed; where its key is held by it, the key goes on
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal
from uuid import UUID

from stream import letters
from stream.database import Connection, query
from stream.errors import Refused
from stream.keys import shown_key
from stream.letters import LetterDetails
from stream.operators import alone, leave_live_head, who, write_action
from stream.parking import lane_number

MOST_REPLAYS = 5  # of one event: what comes back for ever is not helped by once more
TELL_EVERY_S = 1.0

Result = Literal["replayed", "superseded", "discarded", "closed", "worn out"]


@dataclass(frozen=True, slots=True)
class Act:
    """What became of a letter, and why. `closed`: it was already, nothing was done; `worn out`: neither, it was
    replayed too often. `freed`: its key was held by it, and goes on."""

    letter: LetterDetails
    result: Result
    reason: str
    freed: bool = False


def name_of(letter: LetterDetails) -> str:
    """As people read it: `letter 41 (invoicing, orders 536365)`."""
    return f"letter {letter.id} ({letter.group}, {letter.topic} {shown_key(letter.key) or '(no key)'})"


def replay(connection: Connection, id: int, *, most_replays: int = MOST_REPLAYS) -> Act:
    """Let the event run again, in the group that gave it up and in no other, before what waits behind it.

    Where its effect is there already, the letter is superseded, and nothing runs. Raises StreamError where there
    is no such letter, Refused where somebody holds the key's lock for long.
    """
    letter = letters.one(connection, id)
    act = partial(_replay, connection, letter, most_replays)
    return alone(connection, _lane(letter), name_of(letter), act, hint=f"stream dlq replay {id}")


def discard(connection: Connection, id: int, reason: str) -> Act:
    """Close the letter: its event never runs, unless history is run again later. A key that it holds goes on. Raises as
    `replay` does."""
    letter = letters.one(connection, id)
    act = partial(_discard, connection, letter, reason)
    return alone(connection, _lane(letter), name_of(letter), act, hint=f"stream dlq show {id}")


def _replay(connection: Connection, letter: LetterDetails, most_replays: int) -> Act:
    status, outcome, epoch = _look(connection, letter)
    if status != "open":
        return Act(letter, "closed", f"it is {status} already")
    if outcome in ("done", "skipped"):
        freed = _take_away(connection, letter)
        reason = f"its effect is there already, the ledger says {outcome}"
        return _close(connection, Act(letter, "superseded", reason, freed), "dlq replay")
    # Before the earlier events of its key, its effect would be overwritten by theirs.
    if epoch > letter.epoch:
        return Act(letter, "closed", f"it is tried in its turn: epoch {epoch} runs its part of history again")
    if letter.replays >= most_replays:
        return Act(letter, "worn out", f"it was replayed {letter.replays} times before")
    connection.execute(query("forget_death"), {"letter": letter.id})
    row = connection.execute(query("replay_letter"), {"letter": letter.id}).fetchone()
    if row is not None and row[0]:
        leave_live_head(connection, letter.group, _lane(letter))
    act = Act(letter, "replayed", f"replay {letter.replays + 1} of at most {most_replays}", letter.held)
    return _close(connection, act, "dlq replay")


def _discard(connection: Connection, letter: LetterDetails, reason: str) -> Act:
    status, *_ = _look(connection, letter)
    if status != "open":
        return Act(letter, "closed", f"it is {status} already")
    freed = _take_away(connection, letter)
    arguments = {"letter": letter.id, "who": who(), "reason": reason}
    connection.execute(query("discard_event"), arguments)
    return _close(connection, Act(letter, "discarded", reason, freed), "dlq discard")


def _look(connection: Connection, letter: LetterDetails) -> tuple[str, str | None, int]:
    """The letter's status, the ledger's outcome, and the epoch of its position, as they are under the lock."""
    [(status, outcome, epoch)] = connection.execute(query("lock_letter"), {"letter": letter.id})
    return status, outcome, epoch


def _take_away(connection: Connection, letter: LetterDetails) -> bool:
    """The row that holds the letter's key, if there is one; then the key goes on."""
    held = connection.execute(query("unhold"), {"letter": letter.id}).fetchone() is not None
    if held:
        leave_live_head(connection, letter.group, _lane(letter))
    return held


def _close(connection: Connection, act: Act, action: str) -> Act:
    letter = act.letter
    connection.execute(
        query("resolve_letter"),
        {"letter": letter.id, "status": act.result, "who": who(), "reason": act.reason},
    )
    parameters = {"event_id": str(letter.event_id), "type": letter.type, "position": letter.position}
    write_action(connection, action, name_of(letter), act.result, parameters=parameters, reason=act.reason)
    return act


def _lane(letter: LetterDetails) -> int:
    return lane_number(letter.group, letter.topic, letter.key, letter.partition)


@dataclass
class Replaying:
    """Many letters, one after the other, each in a transaction of its own: stopped anywhere, nothing is half done, and
    the same choice again goes on with what is left. `up_to`: as in Choice; what dies later counts as dead again.

    `rate` is in letters a second, and no second has more: time that was lost is not made up for.
    """

    connection: Connection
    ids: Iterable[int]
    up_to: int
    rate: float
    most_replays: int = MOST_REPLAYS
    tell: Callable[[Replaying], None] = lambda _: None
    stopping: threading.Event = field(default_factory=threading.Event)
    acts: dict[Result, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    died_again: int = 0
    _replayed: set[tuple[str, UUID, int]] = field(default_factory=set)

    @property
    def passed(self) -> int:
        """How many letters the run has come past."""
        return sum(self.acts.values()) + len(self.problems)

    def run(self) -> None:
        """Replay until all are, or `stopping` is set. What cannot be locked is left, and named in `problems`."""
        turn = told = time.monotonic()
        for id in self.ids:
            if self.stopping.wait(max(0.0, turn - time.monotonic())):
                break
            turn = max(turn, time.monotonic()) + 1 / self.rate
            try:
                act = replay(self.connection, id, most_replays=self.most_replays)
            except Refused as error:
                self.problems.append(error.message)
                continue
            self._note(act)
            if time.monotonic() - told >= TELL_EVERY_S:
                told = time.monotonic()
                self.count_dead()
                self.tell(self)
        self.count_dead()

    def count_dead(self) -> None:
        """How many of the replayed died again until now: each at most once, for they are not replayed again here."""
        if self._replayed:
            again = set(self.connection.execute(query("died_again"), {"up_to": self.up_to}).fetchall())
            self.died_again = len(again & self._replayed)

    def _note(self, act: Act) -> None:
        self.acts[act.result] = self.acts.get(act.result, 0) + 1
        if act.result == "replayed":
            self._replayed.add((act.letter.group, act.letter.event_id, act.letter.epoch))
