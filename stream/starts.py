"""Where a group starts on a partition it was given. The client decides nothing of this by itself. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """All that is known of one partition when it is assigned. Offsets are the next to read.

    `committed`: the group's, None where the broker has none. `low`, `high`: first offset of the log, and its end.
    `planned`: where the group's first start said it begins, None for a partition the topic got later.
    `seen`: the group has started on it before. `recreated`: the topic has another id than when it was first met.
    `ledger_covers`: no ledger row was pruned that the log can still bring back.
    """

    committed: int | None
    low: int
    high: int
    planned: int | None
    seen: bool
    recreated: bool = False
    ledger_covers: bool = True


@dataclass(frozen=True)
class Start:
    """Start at `offset`. `note` is worth a line in the log; `gap` are records retention took unread: [from, to).
    `grown`: the topic got this partition after the group had begun to read it."""

    offset: int
    note: str | None = None
    gap: tuple[int, int] | None = None
    grown: bool = False


@dataclass(frozen=True)
class Stop:
    """Do not start: a person has to decide. `recreated`: the topic is another than it was."""

    reason: str
    recreated: bool = False


def resolve(place: Place) -> Start | Stop:
    """The start offset of a partition, by one table; never a silent reset.

    | committed                   | start                                                                        |
    |-----------------------------|------------------------------------------------------------------------------|
    | topic has another id        | stop: it was recreated, its offsets mean nothing                             |
    | between low and high        | there                                                                        |
    | above high                  | stop: the log was cut or recreated                                           |
    | below low                   | low; the gap is recorded                                                     |
    | none, never started here    | as planned at the group's first start; a later partition: its beginning      |
    | none, started here before   | as planned again: the ledger makes what was applied a duplicate; pruned: stop |
    """
    if place.recreated:
        return Stop("the topic was deleted and created again; its offsets mean nothing now", recreated=True)
    grown = place.planned is None and not place.seen
    wanted = place.committed
    note = None
    if wanted is None:
        wanted = place.low if place.planned is None else place.planned
        if place.seen:
            if not place.ledger_covers:
                return Stop(
                    "its committed offset is gone, and the ledger no longer remembers all that was applied"
                )
            wanted = max(wanted, place.low)
            note = "its committed offset is gone: it starts over, and the ledger skips what was applied"
        elif place.planned is None:
            note = "a new partition: it starts at the beginning"
    if wanted > place.high:
        return Stop(
            f"offset {wanted} lies beyond the end {place.high}: the log was cut, or the topic recreated"
        )
    if wanted < place.low:
        return Start(place.low, "retention took records that were not read", (wanted, place.low), grown)
    return Start(wanted, note, grown=grown)


def resolve_retries(committed: int | None, low: int, high: int) -> Start:
    """The start on a partition of the group's own retry topic: where it was, or the beginning.

    Nothing can be lost there: what waits for a retry is in the database, and records overdue are published again.
    So a retry topic that was emptied, or deleted and created again, stops nobody.
    """
    return Start(committed if committed is not None and low <= committed <= high else low)


def adopt_command(group: str, topic: str) -> str:
    """The command that lets a group go on with a topic that was created again."""
    return f"stream groups adopt {shlex.join([group, '--topic', topic])} --to-earliest"
