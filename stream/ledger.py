"""Ledger: which events a group has applied. Its rows are written in the transaction of the effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from uuid import UUID

from stream.connection import HandlerConnection
from stream.database import query


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of one group, as one worker writes it. `epoch` 0 is the group's normal life."""

    group: str
    worker: str
    epoch: int = 0

    def begin(self, conn: HandlerConnection, ids: Sequence[UUID], attempt: int) -> set[UUID]:
        """Begin a transaction and claim events for it; returns those that were applied before: not its to apply.

        The row, not yet committed, is the lock: another transaction that claims the same event waits for this one.
        Ids are sorted, so that two of them cannot wait for each other.
        """
        values = {"group": self.group, "epoch": self.epoch, "attempt": attempt, "worker": self.worker}
        if len(ids) == 1:
            conn.execute("begin")
            claimed = conn.execute(query("claim_one"), {**values, "id": ids[0].hex})
            return set() if claimed.rowcount == 1 else set(ids)
        with conn.pipeline():
            conn.execute("begin")
            ordered = _array(sorted(ids, key=attrgetter("int")))
            claimed = conn.execute(query("claim"), {**values, "ids": ordered}, binary=True)
        if claimed.rowcount == len(ids):  # reading 500 ids back costs more than counting them
            return set()
        return set(ids).difference(id for (id,) in claimed)

    def unclaim(self, conn: HandlerConnection, ids: Iterable[UUID]) -> None:
        """Take back claims whose events were not applied."""
        conn.execute(query("unclaim"), {"group": self.group, "epoch": self.epoch, "ids": _array(ids)})

    def skip(self, conn: HandlerConnection, reasons: Mapping[UUID, str]) -> None:
        """Note that claimed events had nothing to do, and why."""
        conn.execute(
            query("skip"),
            {
                "group": self.group,
                "epoch": self.epoch,
                "ids": _array(reasons),
                "reasons": list(reasons.values()),
            },
        )


def _array(ids: Iterable[UUID]) -> str:
    """An array literal: many times cheaper to make than a list of UUIDs is to adapt."""
    return "{" + ",".join([id.hex for id in ids]) + "}"
