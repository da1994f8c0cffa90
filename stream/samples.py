"""Samples: the looks at groups that their own processes write down, for those who ask how it went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from stream.database import Connection, query
from stream.offsets import Partition
from stream.trend import WINDOW_S, Look

EVERY_S = 10.0  # one process of a group looks
KEEP_S = 600.0

Looks = dict[Partition, list[Look]]


def may_sample(connection: Connection, group: str) -> datetime | None:
    """The time of a look that this process is to take now; None where another has taken one a moment ago."""
    row = connection.execute(query("may_sample"), {"group": group, "every_s": EVERY_S}).fetchone()
    return None if row is None else row[0]


def write(
    connection: Connection, group: str, at: datetime, places: Mapping[Partition, tuple[int | None, int]]
) -> None:
    """Keep a look: of each partition the committed offset and the end."""
    rows = [(topic, number, *place) for (topic, number), place in places.items()]
    topics, partitions, committed, ends = (list(column) for column in zip(*rows, strict=True))
    connection.execute(
        query("write_sample"),
        {
            "group": group,
            "at": at,
            "topics": topics,
            "partitions": partitions,
            "committed": committed,
            "ends": ends,
            "keep_s": KEEP_S,
        },
    )


def window(connection: Connection, groups: Iterable[str]) -> dict[str, Looks]:
    """Of each group the looks of the last while, each partition's oldest first; a group without any is left out."""
    found: dict[str, Looks] = defaultdict(lambda: defaultdict(list))
    arguments = {"groups": list(groups), "window_s": WINDOW_S}
    for group, at, *columns in connection.execute(query("samples"), arguments):
        for topic, number, committed, end in zip(*columns, strict=True):
            found[group][topic, number].append(Look(at.timestamp(), committed, end))
    return {group: dict(looks) for group, looks in found.items()}


def now(connection: Connection) -> float:
    """The database's clock, which the looks are timed by."""
    [(at,)] = connection.execute("select clock_timestamp()").fetchall()
    return float(at.timestamp())
