"""Overview: the groups as people look at them, from the database, the broker and the project. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row, dict_row

from stream import parked
from stream.config import Config
from stream.database import Connection, query
from stream.discovery import discover, unknown_group
from stream.errors import GroupError, ProjectImportError, Unreachable
from stream.groups import ConsumerGroup
from stream.holds import Held, holds_of
from stream.kafka.lag import PartitionLag, lags
from stream.keys import shown_key
from stream.offsets import Partition
from stream.project import Project
from stream.topics import retry_topic
from stream.views import rfc3339

NEVER_RAN = "it never ran on this database"


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group. `members`: processes that are there. `lag` in records, `lag_seconds` the age of the oldest of them;
    both None where nothing was ever committed, or the broker does not answer. `parked`, `held`: keys that wait for
    their next try, or for a person. `dead`: open letters."""

    group: str
    members: int
    lag: int | None
    lag_seconds: float | None
    parked: int
    held: int
    dead: int
    holds: Sequence[Held] = ()
    ran: bool = True

    @property
    def state(self) -> str:
        if not self.holds:
            return "running" if self.members else "no members"
        first = self.holds[0]
        return first.by if first.until is None else f"{first.by} until {rfc3339(first.until)}"

    @property
    def verdict(self) -> str:
        """What is wrong, the worst first; OK where nothing keeps the group from its work."""
        if self.holds:
            return self.holds[0].by.upper()
        return "NO MEMBERS" if self.lag and not self.members else "OK"

    @property
    def reason(self) -> str | None:
        """The verdict in words."""
        if self.holds:
            return "; ".join(
                held.reason if not n else f"{held.by} too: {held.reason}" for n, held in enumerate(self.holds)
            )
        if self.verdict == "NO MEMBERS":
            return f"nobody reads what waits: {self.lag} records"
        return None if self.ran else NEVER_RAN

    @property
    def commands(self) -> list[str]:
        """What to type next."""
        if self.holds:
            return [f"stream groups resume {self.group}"]
        return [f"stream consume --group {self.group}"] if self.verdict == "NO MEMBERS" else []


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition of a group: how far it is behind, which worker reads it, and the key that has waited longest."""

    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int | None
    lag_seconds: float | None
    owner: str | None
    blocked_by: str | None


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A process of a group. Not `there`: it died with partitions that nobody has taken over. `progress`: what a
    handler said last, or None; `seen_at`: when that was, or when the process came."""

    worker: str
    there: bool
    partitions: int
    progress: str | None
    seen_at: datetime | None


@dataclass(frozen=True, slots=True)
class GroupDetails:
    summary: GroupSummary
    partitions: Sequence[PartitionView]
    workers: Sequence[WorkerView]


@dataclass(frozen=True, slots=True)
class Known:
    """The groups there are: those of the project, and the rows of those the database knows. `notes` say what is
    missing, as the project does not import."""

    declared: Mapping[str, ConsumerGroup]
    rows: Mapping[str, dict[str, Any]]
    notes: Sequence[str]

    @property
    def names(self) -> list[str]:
        return sorted(self.declared.keys() | self.rows.keys())

    def topics(self, name: str) -> set[str]:
        """What the group reads, its retry topic too."""
        topics = self.declared[name].topics if name in self.declared else self.rows[name]["topics"]
        return {*topics, retry_topic(name)}

    def require(self, name: str, command: str) -> None:
        """Raise GroupError where there is no such group."""
        if name not in self.names:
            raise unknown_group(name, self.names, command)


def known_groups(connection: Connection, project: Project) -> Known:
    """Also where the project does not import: what stands in the database can still be seen, paused and resumed."""
    declared, notes = {}, []
    try:
        declared = discover(project)
    except (ProjectImportError, GroupError) as error:
        notes = [f"groups that never ran are not shown: {error.message.splitlines()[0]}"]
    return known_of(connection, declared, notes)


def known_of(
    connection: Connection, declared: Mapping[str, ConsumerGroup], notes: Sequence[str] = ()
) -> Known:
    """These groups of a project, and what the database knows."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(query("groups"), {"group": None}).fetchall()
    return Known(declared, {row["group"]: row for row in rows}, notes)


def summaries(config: Config, known: Known) -> tuple[list[GroupSummary], Unreachable | None]:
    """All groups. Where the broker does not answer, without lag, and with what it said."""
    found, problem = _lags(config, known, known.names)
    return [_summary(known, name, found.get(name, {})) for name in known.names], problem


def details(
    config: Config, connection: Connection, known: Known, name: str
) -> tuple[GroupDetails, Unreachable | None]:
    """One group; where the broker does not answer, without its partitions."""
    found, problem = _lags(config, known, [name])
    behind = found.get(name, {})
    owners = {
        (topic, number): worker
        for topic, number, worker in connection.execute(query("owners"), {"group": name})
    }
    blocked: dict[Partition, str] = {}
    for key in parked.keys(connection, group=name):  # those that wait longest come first
        blocked.setdefault((key.topic, key.partition), shown_key(key.key) or "(no key)")
    partitions = [
        PartitionView(
            *partition,
            one.committed,
            one.end,
            one.lag,
            one.lag_seconds,
            owners.get(partition),
            blocked.get(partition),
        )
        for partition, one in behind.items()
    ]
    with connection.cursor(row_factory=class_row(WorkerView)) as cursor:
        workers = cursor.execute(query("group_workers"), {"group": name}).fetchall()
    return GroupDetails(_summary(known, name, behind), partitions, workers), problem


def _lags(
    config: Config, known: Known, names: Iterable[str]
) -> tuple[dict[str, dict[Partition, PartitionLag]], Unreachable | None]:
    try:
        return lags(config, {name: known.topics(name) for name in names}), None
    except Unreachable as error:
        return {}, error


def _summary(known: Known, name: str, behind: Mapping[Partition, PartitionLag]) -> GroupSummary:
    row = known.rows.get(name)
    records = [one.lag for one in behind.values() if one.lag is not None]
    ages = [one.lag_seconds for one in behind.values() if one.lag_seconds is not None]
    return GroupSummary(
        group=name,
        members=row["members"] if row else 0,
        lag=sum(records) if records else None,
        lag_seconds=max(ages, default=None),
        parked=row["parked"] if row else 0,
        held=row["held"] if row else 0,
        dead=row["dead"] if row else 0,
        holds=holds_of(row) if row else (),
        ran=row is not None and bool(row["topics"]),
    )
