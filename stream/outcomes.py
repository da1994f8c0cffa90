"""Outcome: what became of one record. The processor acts on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["done", "duplicate", "skipped", "parked", "dead", "woken", "postponed", "failed", "unrun"]
Stage = Literal["decode", "handler", "commit"]


@dataclass(frozen=True, slots=True)
class FirstTry:
    """What is kept of a record's first try, which failed at `at` (monotonic seconds), until its second is made, at
    `again_at`."""

    at: float
    again_at: float
    error_class: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """`done`: its effects are committed. `duplicate`: they were before. `skipped`: there was nothing to do, `reason`
    says why. `parked`: it waits in the database, for its next try or behind one that does. `dead`: given up, a
    letter is written. `woken`: a retry record; what it woke is in the database. These are finished: the offset may
    pass.

    `postponed`: its first try failed, and its second (`first` says when) is made by this process, which keeps it in
    memory until then. `failed`: its handler, or its bytes (`stage`), raised `error`, and nothing is written down
    about it. `unrun`: it was not tried, or the try did not count; it comes again.
    """

    kind: Kind
    reason: str | None = None
    error: BaseException | None = None
    stage: Stage | None = None
    first: FirstTry | None = None

    @property
    def finished(self) -> bool:
        return self.kind not in ("postponed", "failed", "unrun")


DONE = Outcome("done")
DUPLICATE = Outcome("duplicate")
PARKED = Outcome("parked")
DEAD = Outcome("dead")
WOKEN = Outcome("woken")
UNRUN = Outcome("unrun")
BUSY = Outcome("unrun", "its key is in another worker's hands")
TOMBSTONE = Outcome("skipped", "tombstone")
NO_HANDLER = Outcome("skipped", "no handler")
