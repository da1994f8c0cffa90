"""Ledger: which events a group has applied. Its rows are written in the transaction of the effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from uuid import UUID

from psycopg import Cursor

from stream.connection import HandlerConnection
from stream.database import int_array, query
from stream.work import Work


class Taken(Exception):
    """Somebody else's transaction holds a claim for longer than claims are waited for: other events go first."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim on its way; ask once its pipeline has ended."""

    ids: Sequence[UUID]
    cursor: Cursor[tuple[Any, ...]]

    def refused(self) -> set[UUID]:
        """Those that were applied before: not this transaction's to apply."""
        if self.cursor.rowcount == len(self.ids):  # reading 500 ids back costs more than counting them
            return set()
        return set(self.ids).difference(id for (id,) in self.cursor)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of one group, as one worker writes it."""

    group: str
    worker: str

    def claim(
        self, conn: HandlerConnection, ids: Sequence[UUID], attempts: Sequence[int] | None = None
    ) -> Claim:
        """Claim events for the transaction that was begun: first tries, where `attempts` does not say otherwise.
        Statement only; for a pipeline.

        The row, not yet committed, is the lock: another transaction that claims the same event waits for this one.
        Ids are sorted, so that two of them cannot wait for each other.
        """
        arguments = {"group": self.group, "epoch": 0, "worker": self.worker}
        if attempts is None:
            arguments["ids"] = _array(sorted(ids, key=attrgetter("int")))
            return Claim(ids, conn.execute(query("claim"), arguments, binary=True))
        arguments |= {"ids": _array(ids), "attempts": int_array(attempts)}
        return Claim(ids, conn.execute(query("claim_again"), arguments, binary=True))

    def claim_one(self, conn: HandlerConnection, id: UUID, attempt: int, lane: int) -> tuple[bool, bool]:
        """The same for one event; returns whether it was claimed, and whether its lane has parked rows."""
        arguments = {"group": self.group, "epoch": 0, "worker": self.worker}
        arguments |= {"id": id.hex, "attempt": attempt, "lane": lane}
        rows = conn.execute(query("claim_one"), arguments).rowcount
        return rows > 0, rows > 1

    def claim_reapplied(
        self, conn: HandlerConnection, works: Sequence[Work]
    ) -> tuple[Cursor[tuple[Any, ...]], Cursor[tuple[Any, ...]]]:
        """The same for works of an epoch above 0. Two cursors: over those claimed (event id, epoch, whether it is the
        event's first claim of all), and over those done in another epoch (event id, epoch)."""
        asked = {
            "group": self.group,
            "worker": self.worker,
            "ids": _array([work.id for work in works]),
            "epochs": [work.epoch for work in works],
            "attempts": [work.attempt for work in works],
        }
        conn.execute(query("forget_deaths"), asked)
        claimed = conn.execute(query("claim_reapplied"), asked, binary=True)
        return claimed, conn.execute(query("done_in_other_epochs"), asked, binary=True)

    def applied(self, conn: HandlerConnection, works: Sequence[Work]) -> Any:
        """A cursor over (event id, epoch) of those that are in the ledger, by what is committed."""
        return conn.execute(
            query("applied"),
            {
                "group": self.group,
                "ids": _array([work.id for work in works]),
                "epochs": [work.epoch for work in works],
            },
        )

    def unclaim(self, conn: HandlerConnection, works: Iterable[Work]) -> None:
        """Take back claims whose events were not applied."""
        ids, epochs = _entries(works)
        conn.execute(query("unclaim"), {"group": self.group, "ids": _array(ids), "epochs": epochs})

    def skip(self, conn: HandlerConnection, reasons: Mapping[Work, str]) -> None:
        """Note that claimed events had nothing to do, and why."""
        ids, epochs = _entries(reasons)
        texts = [reason for work, reason in reasons.items() for _ in work.entries]
        arguments = {"group": self.group, "ids": _array(ids), "epochs": epochs, "reasons": texts}
        conn.execute(query("skip"), arguments)


def _entries(works: Iterable[Work]) -> tuple[list[UUID], list[int]]:
    """Event ids and epochs of the ledger rows that these works hold."""
    pairs = [(work.id, epoch) for work in works for epoch in work.entries]
    return [id for id, _ in pairs], [epoch for _, epoch in pairs]


def _array(ids: Iterable[UUID]) -> str:
    """An array literal: many times cheaper to make than a list of UUIDs is to adapt."""
    return "{" + ",".join([id.hex for id in ids]) + "}"
