"""Pruning: ledger rows that nothing can need any more are deleted, and the group's horizon is moved with them.

A ledger row is needed for as long as its record can be read again. So a group's rows are pruned only up to where its
topics still begin; retention decides how far that is, not this module.
"""

from __future__ import annotations

import math
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from psycopg.rows import dict_row

from stream.config import Config
from stream.database import Connection, query
from stream.errors import Refused
from stream.kafka.admin import topic_ids
from stream.kafka.oldest import oldest_records
from stream.offsets import Partition
from stream.operators import write_action
from stream.overview import Known
from stream.views import clock, rfc3339

ROWS_AT_ONCE = 5000
# A row's time is the database's, a record's the broker's: their clocks may differ by so much.
CLOCKS_DIFFER = timedelta(hours=1)
_EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Need:
    """Why a group's rows may not go, and the command that is typed next."""

    reason: str
    command: str


@dataclass(frozen=True, slots=True)
class OldRows:
    """A group's ledger rows from before the time that was asked for. `need`: None where nothing needs them."""

    group: str
    rows: int
    oldest_at: datetime
    need: Need | None


@dataclass(frozen=True, slots=True)
class Logs:
    """The cluster's topics: their ids, and of each partition when its first record was written, None where it has
    none."""

    ids: Mapping[str, str]
    oldest: Mapping[Partition, datetime | None]


def plan(
    config: Config, connection: Connection, known: Known, before: datetime, group: str | None
) -> list[OldRows]:
    """The groups that have ledger rows from before then, or the one group. Raises Unreachable without a broker."""
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(query("ledger_older"), {"before": before, "group": group}).fetchall()
    none: frozenset[str] = frozenset()
    declared = {name: frozenset(of.topics) for name, of in known.declared.items()}
    topics = {topic for row in found for topic in declared.get(row["group"], none) | row["met"].keys()}
    logs = Logs(topic_ids(config, topics), oldest_records(config, topics)) if topics else Logs({}, {})
    now = datetime.now(UTC)
    return [
        OldRows(
            row["group"],
            row["rows"],
            row["oldest_at"],
            _in_work(row["group"], row["parked"], row["letters"])
            or still_read(row["group"], declared.get(row["group"], none), row["met"], logs, before, now),
        )
        for row in found
    ]


def still_read(
    group: str, declared: frozenset[str], met: Mapping[str, str], logs: Logs, before: datetime, now: datetime
) -> Need | None:
    """What a rewind of the group could still bring back from before then. Pure.

    `declared`: the topics it reads; `met`: those it has read, with their ids. A log that nobody can look into, or that
    is not the one the group has read, may hold anything: this may be another cluster.
    """
    topics = declared | met.keys()
    there = topics & logs.ids.keys()
    missing = declared - there or (frozenset() if there else topics)
    if missing:
        return Need(f"topic {min(missing)} is not on this cluster", "stream doctor")
    if not topics:
        return Need("neither the project nor the database knows its topics", "stream groups list")
    strange = [topic for topic in sorted(there) if met.get(topic, logs.ids[topic]) != logs.ids[topic]]
    if strange:
        return Need(f"topic {strange[0]} is not the one that the group has read", "stream doctor")
    first = {p: time for p, time in logs.oldest.items() if p[0] in topics and time is not None}
    if not first:
        return None
    (topic, number), time = min(first.items(), key=lambda item: item[1])
    if time >= before + CLOCKS_DIFFER:
        return None
    days = math.floor((now - time + CLOCKS_DIFFER) / timedelta(days=1)) + 1
    return Need(
        f"{topic}[{number}] holds records since {clock(time)}: a rewind would apply them again",
        f"stream ledger prune --group {shlex.quote(group)} --older-than {days}d",
    )


def _in_work(group: str, parked: int, letters: int) -> Need | None:
    name = shlex.quote(group)
    if parked:
        return Need(f"{parked} of their events are parked", f"stream parked list --group {name}")
    if letters:
        return Need(f"{letters} open dead letters are of their events", f"stream dlq list --group {name}")
    return None


def check_needs(found: Sequence[OldRows]) -> None:
    """Raise Refused where rows of a group are needed."""
    needed = [(one.group, one.need) for one in found if one.need is not None]
    if needed:
        reasons = "\n".join(
            f"ledger rows of group {group} are needed: {need.reason}" for group, need in needed
        )
        raise Refused(reasons, hint=needed[0][1].command)


@dataclass
class Pruning:
    """The deletion of what was planned, some thousand rows a transaction: stopped anywhere, all that is left is rows
    too many, and the same again goes on. The horizon is moved before the first row goes."""

    connection: Connection
    found: Sequence[OldRows]
    before: datetime
    tell: Callable[[Pruning], None] = lambda _: None
    stopping: threading.Event = field(default_factory=threading.Event)
    deleted: int = 0
    complete: bool = False

    def run(self) -> None:
        """Delete until all is gone, or `stopping` is set."""
        self._move_horizons()
        reached = _EVER
        while not self.stopping.is_set():
            arguments = {
                "groups": [one.group for one in self.found],
                "reached": reached,
                "before": self.before,
                "most": ROWS_AT_ONCE,
            }
            [(count, youngest)] = self.connection.execute(query("prune_ledger"), arguments)
            if not count:
                self.connection.execute(query("prune_waited"), arguments)
                self.complete = True
                return
            self.deleted += count
            reached = youngest
            self.tell(self)

    def _move_horizons(self) -> None:
        with self.connection.transaction():
            for one in self.found:
                self.connection.execute(query("ledger_horizon"), {"group": one.group, "before": self.before})
                parameters = {"before": rfc3339(self.before), "rows": one.rows}
                write_action(
                    self.connection, "ledger prune", one.group, f"pruned before {clock(self.before)}",
                    parameters=parameters,
                )  # fmt: skip
