"""Outcome: what became of one record. The processor acts on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["done", "duplicate", "skipped", "failed", "unrun"]
Stage = Literal["decode", "handler", "commit"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`done`: its effects are committed. `duplicate`: they were before. `skipped`: there was nothing to do, `reason`
    says why. These are finished: the offset may pass.

    `failed`: its handler, or its bytes (`stage`), raised `error`. `unrun`: it stands behind a failed record of its
    key, or the group is stopping.
    """

    kind: Kind
    reason: str | None = None
    error: BaseException | None = None
    stage: Stage | None = None

    @property
    def finished(self) -> bool:
        return self.kind not in ("failed", "unrun")


DONE = Outcome("done")
DUPLICATE = Outcome("duplicate")
UNRUN = Outcome("unrun")
TOMBSTONE = Outcome("skipped", "tombstone")
NO_HANDLER = Outcome("skipped", "no handler")
