"""Work: one record on its way to an outcome, within a run."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from stream.errors import text_of
from stream.events import Record
from stream.lanes import LaneKey
from stream.outcomes import UNRUN, FirstTry, Outcome, Stage
from stream.signals import event_fields


@dataclass(frozen=True, slots=True)
class ParkedRow:
    """What a parked row knows beside its record. `age_s`: seconds since it first failed."""

    lane: int
    attempts: int
    age_s: float


@dataclass(slots=True, eq=False)
class Work:
    """One record. `type` and `time` are what its headers say, `id` is never missing.

    `first`: this is the second try, of a record that was kept in memory. `row`: it was parked, and this is another
    try. `epoch` is its position's (epochs.py). `claimed`: this transaction holds its ledger rows, and `rerun` says
    what of: the epoch, where the event was applied in an earlier one, else 0.
    """

    record: Record
    lane: LaneKey
    id: uuid.UUID
    type: str | None
    time: str | None
    row: ParkedRow | None = None
    first: FirstTry | None = None
    epoch: int = 0
    outcome: Outcome | None = None
    claimed: bool = False
    rerun: int = 0

    def fail(self, error: BaseException, stage: Stage) -> None:
        self.outcome = Outcome("failed", text_of(error), error, stage)

    @property
    def attempt(self) -> int:
        """The number of the try, from 1."""
        if self.row is not None:
            return self.row.attempts + 1
        return 1 if self.first is None else 2

    @property
    def entries(self) -> tuple[int, ...]:
        """Epochs of its rows in the ledger: where it is applied for the first time, always that of epoch 0 too."""
        if not self.epoch:
            return (0,)
        return (self.epoch,) if self.rerun else (0, self.epoch)

    @property
    def finished(self) -> bool:
        return self.outcome is not None and self.outcome.finished

    @property
    def failed(self) -> bool:
        return self.outcome is not None and self.outcome.kind == "failed"

    @property
    def named(self) -> dict[str, object]:
        """What a line of the log about it says of it."""
        record = self.record
        return event_fields(record, record.key, self.id, self.type, self.attempt)

    @property
    def place(self) -> tuple[str, int, int, uuid.UUID]:
        return (self.record.topic, self.record.partition, self.record.offset, self.id)


def leave_behind(works: Iterable[Work]) -> None:
    """What stands behind an unfinished event of its key does not run; where it has failed already, in a transaction
    that the earlier one still survived, that does not count."""
    blocked: set[LaneKey] = set()
    for work in works:
        if work.lane in blocked:
            if work.outcome is None or work.outcome.kind in ("failed", "postponed"):
                work.outcome = UNRUN
        elif work.outcome is not None and not work.finished:
            blocked.add(work.lane)


def let_go(works: Iterable[Work]) -> None:
    """Their transaction is over: it holds no ledger rows of theirs. (To unclaim later what is not held would take
    away the row of somebody who applied the event meanwhile.)"""
    for work in works:
        work.claimed = False


def forget(works: Iterable[Work]) -> None:
    """As if they had never been tried."""
    for work in works:
        work.outcome = None
