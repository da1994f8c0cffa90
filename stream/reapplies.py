"""Reapplies: ranges of a group's history that are run again on purpose, each as a new epoch.

plan       the ranges are written down with the rewind that is to move the offsets, before it moves any
settle     did it? The offsets themselves say so. They were moved: what is parked in the ranges makes way, to be read
           again in its turn, and what is passed over elsewhere is not run again after all. They were not: as if never
           planned. The command does this, or where it was killed, whoever of the group is there next, before it reads

A range is in force from the plan on, which changes nothing before offsets are moved: events that were never applied are
applied as ever (`Ledger.claim_reapplied`), and what was given up has its letter until it is run again
(`Parking.supersede`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

from stream.database import Connection, query
from stream.epochs import Range, passed_over
from stream.offsets import Partition


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


def settle(connection: Connection, group: str, committed: Callable[[], Mapping[Partition, int]]) -> None:
    """Make true what became of a rewind that was cut off, or of one's own, and write down whether its offsets were
    moved. While nobody reads; `committed` asks the broker.

    One commit moves all offsets of a rewind, so they are all old or all new.
    """
    with connection.transaction():
        rows = connection.execute(query("unsettled_rewinds"), [group]).fetchall()
        offsets = committed() if rows else {}
        for (rewind, epoch), found in groupby(rows, key=lambda row: row[:2]):
            moves = [row[2:] for row in found]
            moved = all(offsets.get((topic, n)) == new for topic, n, old, new in moves if old != new)
            if moved:
                if epoch is not None:
                    finish(connection, group, epoch)
                for topic, n, old, new in moves:
                    if old is not None and new > old:
                        pass_over(connection, group, topic, n, old, new)
            elif epoch is not None:
                undo(connection, group, epoch)
            connection.execute(query("settle_rewind"), {"rewind": rewind, "moved": moved})


def finish(connection: Connection, group: str, epoch: int) -> int:
    """The offsets stand where it begins. Returns how many parked events make way. In one transaction, which waits for
    whoever works on their keys."""
    asked = {"group": group, "epoch": epoch}
    with connection.transaction():
        lanes = [lane for (lane,) in connection.execute(query("lanes_reapplied"), asked)]
        connection.execute(query("lock_lanes"), {"lanes": lanes})
        connection.execute(query("forget_read"), asked)  # before what is set aside now
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
