"""Ledger: which events a group has applied. Its rows are written in the transaction of the effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from uuid import UUID

from psycopg import Cursor

from stream.connection import HandlerConnection
from stream.database import query


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
    """The ledger of one group, as one worker writes it. `epoch` 0 is the group's normal life."""

    group: str
    worker: str
    epoch: int = 0

    def claim(
        self, conn: HandlerConnection, ids: Sequence[UUID], attempts: Sequence[int] | None = None
    ) -> Claim:
        """Claim events for the transaction that was begun: first tries, where `attempts` does not say otherwise.
        Statement only; for a pipeline.

        The row, not yet committed, is the lock: another transaction that claims the same event waits for this one.
        Ids are sorted, so that two of them cannot wait for each other.
        """
        arguments = {"group": self.group, "epoch": self.epoch, "worker": self.worker}
        if attempts is None:
            arguments["ids"] = _array(sorted(ids, key=attrgetter("int")))
            return Claim(ids, conn.execute(query("claim"), arguments, binary=True))
        arguments |= {"ids": _array(ids), "attempts": list(attempts)}
        return Claim(ids, conn.execute(query("claim_again"), arguments, binary=True))

    def claim_one(self, conn: HandlerConnection, id: UUID, attempt: int, lane: int) -> tuple[bool, bool]:
        """The same for one event; returns whether it was claimed, and whether its lane has parked rows."""
        arguments = {"group": self.group, "epoch": self.epoch, "worker": self.worker}
        arguments |= {"id": id.hex, "attempt": attempt, "lane": lane}
        rows = conn.execute(query("claim_one"), arguments).rowcount
        return rows > 0, rows > 1

    def applied(self, conn: HandlerConnection, ids: Sequence[UUID]) -> Any:
        """A cursor over those that are in the ledger, by what is committed."""
        return conn.execute(query("applied"), {"group": self.group, "epoch": self.epoch, "ids": _array(ids)})

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
