"""Reapplies: ranges of a group's history that are run again on purpose, each as a new epoch.

plan     the ranges are written down, before any offset is moved; nobody of the group may read meanwhile
finish   the offsets were moved and read back: the group may start. What is parked in the ranges makes way, to be read
         again in its turn; what was given up has its letter until it is run again (`Parking.supersede`)
undo     they were not, or not all, and have been moved back: as if never planned
pass_over  the group goes on further ahead than it has come: what lies between is not run again, and what was parked
         there is parked once more

Until a plan is finished or undone, its group does not start. A range is in force from the plan on, which changes
nothing before offsets are moved: events that were never applied are applied as ever (`Ledger.claim_reapplied`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from stream.database import Connection, query
from stream.epochs import Range, passed_over


@dataclass(frozen=True, slots=True)
class Reapply:
    """A planned one: neither finished nor undone."""

    epoch: int
    ranges: Sequence[Range]
    who: str
    reason: str | None
    at: datetime


def plan(connection: Connection, group: str, ranges: Iterable[Range], *, who: str, reason: str | None) -> int:
    """Write the ranges (at least one) down as a new epoch; returns its number."""
    listed = list(ranges)
    [(epoch,)] = connection.execute(
        query("plan_reapply"),
        {
            "group": group,
            "topics": [range.topic for range in listed],
            "partitions": [range.partition for range in listed],
            "lows": [range.from_offset for range in listed],
            "highs": [range.to_offset for range in listed],
            "olds": [range.old_offset for range in listed],
            "who": who,
            "reason": reason,
        },
    )
    return int(epoch)


def planned(connection: Connection, group: str) -> Reapply | None:
    """What is planned of the group, if anything is."""
    rows = connection.execute(query("planned_reapply"), [group]).fetchall()
    if not rows:
        return None
    epoch, who, reason, at = rows[0][:4]
    return Reapply(epoch, [Range(*columns) for _, _, _, _, *columns in rows], who, reason, at)


def finish(connection: Connection, group: str, epoch: int) -> int:
    """The offsets stand where it begins. Returns how many parked events make way. In one transaction, which waits for
    whoever works on their keys."""
    asked = {"group": group, "epoch": epoch}
    with connection.transaction():
        lanes = [lane for (lane,) in connection.execute(query("lanes_reapplied"), asked)]
        connection.execute(query("lock_lanes"), {"lanes": lanes})
        [(moved,)] = connection.execute(query("set_parked_aside"), asked)
        connection.execute(query("leave_live_heads"), asked | {"lanes": lanes})
        connection.execute(query("finish_reapply"), asked)
    return int(moved)


def undo(connection: Connection, group: str, epoch: int) -> None:
    """Take back what was planned and not finished."""
    connection.execute(query("undo_reapply"), {"group": group, "epoch": epoch})


def pass_over(
    connection: Connection, group: str, topic: str, partition: int, committed: int, new: int
) -> None:
    """The group has come to `committed` and goes on at `new`, further ahead. In one transaction."""
    place = {"group": group, "topic": topic, "partition": partition, "low": committed, "high": new}
    with connection.transaction():
        lanes = [lane for (lane,) in connection.execute(query("lanes_set_aside"), place)]
        connection.execute(query("lock_lanes"), {"lanes": lanes})
        connection.execute(query("park_again"), place)
        connection.execute(query("leave_live_heads"), place | {"lanes": lanes})
        for id, *columns in connection.execute(query("lock_reapplied"), place).fetchall():
            rest = passed_over(Range(*columns), committed, new)
            lows, highs = [r.from_offset for r in rest], [r.to_offset for r in rest]
            connection.execute(query("cut_reapply"), {"id": id, "lows": lows, "highs": highs})
