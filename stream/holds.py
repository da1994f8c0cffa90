"""Holds: what keeps a whole group from running anything, as people see it and change it. Its workers: control.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg import errors as pg
from psycopg.rows import dict_row

from stream.database import Connection, query
from stream.errors import Refused
from stream.operators import LOCK_TIMEOUT, write_action
from stream.policy import by_an_operator, winner
from stream.views import rfc3339

HeldBy = Literal["halted", "paused", "breaker open"]


@dataclass(frozen=True, slots=True)
class Held:
    """One hold of a group. `until`: None where only a person or a probe ends it."""

    by: HeldBy
    reason: str
    since: datetime | None
    until: datetime | None = None


def holds_of(row: dict[str, Any]) -> list[Held]:
    """What holds a group, by its row of groups.sql or holds.sql; what wins stands first."""
    found: list[Held] = []
    if row["halted"]:
        found.append(Held("halted", row["halted_reason"] or "halted", row["halted_at"]))
    if row["paused"]:
        found.append(
            Held("paused", by_an_operator(row["paused_reason"]), row["paused_at"], row["paused_until"])
        )
    if row["broken"]:
        found.append(Held("breaker open", row["breaker_reason"] or "open", row["breaker_open_since"]))
    first = winner(halted=row["halted"], paused=row["paused"], breaker_open=row["broken"])
    return sorted(found, key=lambda held: held.by != first)


def held_groups(connection: Connection, groups: Iterable[str]) -> dict[str, str]:
    """Of those groups that run nothing now: what keeps them from it, and why."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(query("holds"), {"groups": list(groups)}).fetchall()
    held = {row["group"]: holds_of(row) for row in rows}
    return {group: f"{found[0].by}: {found[0].reason}" for group, found in held.items() if found}


def pause(connection: Connection, group: str, reason: str, until: datetime | None) -> list[Held]:
    """Let nothing of the group start, until then or for good; returns what held it before: a pause is replaced."""
    with _alone(connection, group) as before:
        connection.execute(query("pause_group"), {"group": group, "until": until, "reason": reason})
        parameters = {"until": None if until is None else rfc3339(until), "before": _names(before)}
        write_action(connection, "groups pause", group, "paused", parameters=parameters, reason=reason)
    return before


def resume(connection: Connection, group: str, reason: str | None) -> list[Held]:
    """Lift whatever holds the group; returns what that was, and does nothing where it is nothing.

    Its workers notice within about a second, and count failures anew.
    """
    with _alone(connection, group) as before:
        if before:
            connection.execute(query("resume_group"), {"group": group})
            parameters = {"before": _names(before)}
            write_action(connection, "groups resume", group, "resumed", parameters=parameters, reason=reason)
    return before


def _names(holds: list[Held]) -> list[str]:
    return [held.by for held in holds]


@contextmanager
def _alone(connection: Connection, group: str) -> Iterator[list[Held]]:
    """A transaction in which nobody else changes what holds the group, and what holds it at its beginning.

    Raises Refused where somebody else does for long.
    """
    try:
        with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute("select set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
            cursor.execute(query("lock_holds"), {"group": group})
            row = cursor.execute(query("holds"), {"groups": [group]}).fetchone()
            yield [] if row is None else holds_of(row)
    except pg.LockNotAvailable:
        raise Refused(
            f"group {group}: a transaction that works on it did not end within {LOCK_TIMEOUT}",
            hint=f"stream groups describe {group}",
        ) from None
