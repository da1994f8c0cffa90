"""Overview: the groups as people look at them, from the database, the broker and the project. Changes nothing."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row, dict_row

from stream import parked, samples
from stream.config import Config
from stream.database import Connection, query
from stream.discovery import discover, unknown_group
from stream.errors import GroupError, ProjectImportError, Unreachable
from stream.groups import ConsumerGroup
from stream.groupstate import by_partition
from stream.holds import holds_of
from stream.kafka.admin import topic_ids
from stream.kafka.lag import PartitionLag, lags
from stream.keys import shown_key
from stream.offsets import Partition
from stream.parked import ParkedKey
from stream.project import Project
from stream.topics import retry_topic
from stream.trend import Look, Trend, seconds_rated, trend
from stream.verdicts import (
    GroupSummary,
    Handling,
    History,
    PartitionView,
    blocker,
    group_trend,
    handlings,
    history,
    oldest,
    stalled,
    topic_problem,
)
from stream.views import Gap, GrownPartition, gaps, grown_partitions

LOOK_AGAIN_S = 2.0  # between two looks, where the group's processes have written down none
OLD_ENOUGH_S = 5.0  # a look that says something of rates


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A process of a group. Not `there`: it died with partitions that nobody has taken over. `progress`: what a
    handler said last, or None; `seen_at`: when that was, or when the process came. `handling`: events that handlers
    have been at for a while."""

    worker: str
    there: bool
    partitions: int
    progress: str | None
    seen_at: datetime | None
    handling: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """`trend`: of all partitions together. `rated_over`: seconds between the looks that rates are made of. `history`:
    what is left of it, None where nothing is."""

    summary: GroupSummary
    trend: Trend
    rated_over: float | None
    history: History | None
    partitions: Sequence[PartitionView]
    workers: Sequence[WorkerView]
    gaps: Sequence[Gap]
    grown: Sequence[GrownPartition]


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
        topics = self.declared[name].topics if name in self.declared else self.met(name)
        return {*topics, retry_topic(name)}

    def met(self, name: str) -> Mapping[str, str]:
        """The topics that the group has begun to read, and the ids they had then."""
        met: Mapping[str, str] = self.rows[name]["topic_ids"] if name in self.rows else {}
        return met

    def history(self, name: str, lags: Mapping[Partition, PartitionLag]) -> History | None:
        """What is left of a group's history, and how fast that may go by what its file says now."""
        group, row = self.declared.get(name), self.rows.get(name)
        rates = [] if group is None else [group.rate, group.catch_up_rate]
        rate = min((each for each in rates if each is not None), default=None)
        return history(by_partition(row["history_ends"] if row else {}), lags, rate)

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


def summaries(
    config: Config, connection: Connection, known: Known
) -> tuple[list[GroupSummary], Unreachable | None]:
    """All groups. Where the broker does not answer, without lag, and with what it said."""
    found = _look(config, connection, known, known.names)
    owners = _owners(connection)
    handling = _handling(connection)
    return [
        _summary(known, name, found, owners.get(name, {}), handling.get(name, [])) for name in known.names
    ], found.unreachable


def details(
    config: Config, connection: Connection, known: Known, name: str
) -> tuple[GroupDetails, Unreachable | None]:
    """One group; where the broker does not answer, without its partitions."""
    found = _look(config, connection, known, [name], rates=True)
    behind, trends = found.lags.get(name, {}), found.trends.get(name, {})
    owners = _owners(connection).get(name, {})
    handling = _handling(connection).get(name, [])
    summary = _summary(known, name, found, owners, handling)
    waiting: dict[Partition, list[ParkedKey]] = defaultdict(list)
    for key in parked.keys(connection, group=name):  # those that wait longest come first
        waiting[key.topic, key.partition].append(key)
    partitions = []
    for partition, one in behind.items():
        owner, keys, trend = owners.get(partition), waiting[partition], trends[partition]
        of_owner = [each for each in handling if each.worker == owner]
        block = blocker(partition, one, keys, owner, of_owner, summary.holds)
        partitions.append(
            PartitionView(
                *partition,
                one.committed,
                one.end,
                one.lag,
                one.lag_seconds,
                trend.rate_in,
                trend.rate_out,
                trend.eta_seconds,
                trend.movement,
                owner,
                None if block is None else block.by,
                None if block is None else block.why,
                oldest(one, keys),
            )
        )
    with connection.cursor(row_factory=class_row(WorkerView)) as cursor:
        workers = cursor.execute(query("group_workers"), {"group": name}).fetchall()
    together = group_trend(trends, {p: one.lag for p, one in behind.items()}, owners)
    left = known.history(name, behind)
    lost, grown = gaps(connection, name), grown_partitions(connection, name)
    return GroupDetails(
        summary, together, found.rated_over, left, partitions, workers, lost, grown
    ), found.unreachable


@dataclass(frozen=True, slots=True)
class _Found:
    """What the broker says of groups, and how that went. `ids`: of topics, None where they could not be had."""

    lags: Mapping[str, Mapping[Partition, PartitionLag]]
    trends: Mapping[str, Mapping[Partition, Trend]]
    ids: Mapping[str, str] | None
    rated_over: float | None = None
    unreachable: Unreachable | None = None


def _look(
    config: Config, connection: Connection, known: Known, names: Sequence[str], *, rates: bool = False
) -> _Found:
    """With `rates`, twice where nothing that says something of them was written down before us."""
    asked = {name: known.topics(name) for name in names}
    looks = samples.window(connection, names)
    try:
        found = _look_now(config, connection, looks, asked)
        if rates and _rated_over(looks) < OLD_ENOUGH_S:
            time.sleep(LOOK_AGAIN_S)
            found = _look_now(config, connection, looks, asked)
        ids = topic_ids(config, {topic for name in names for topic in known.met(name)})
    except Unreachable as error:
        return _Found({}, {}, None, unreachable=error)
    trends = {
        name: {p: trend(looks[name][p], one.lag) for p, one in of_group.items()}
        for name, of_group in found.items()
    }
    return _Found(found, trends, ids, _rated_over(looks) or None)


def _look_now(
    config: Config,
    connection: Connection,
    looks: dict[str, samples.Looks],
    asked: Mapping[str, Collection[str]],
) -> dict[str, dict[Partition, PartitionLag]]:
    """How far the groups are; added to `looks`."""
    at = samples.now(connection)
    found = lags(config, asked)
    for name, of_group in found.items():
        for partition, one in of_group.items():
            of_partitions = looks.setdefault(name, {})
            of_partitions.setdefault(partition, []).append(Look(at, one.committed, one.end))
    return found


def _rated_over(looks: Mapping[str, samples.Looks]) -> float:
    """Seconds between the looks that the rates of most partitions are made of."""
    return max(
        (seconds_rated(each) for of_group in looks.values() for each in of_group.values()), default=0.0
    )


def _owners(connection: Connection) -> dict[str, dict[Partition, str]]:
    found: dict[str, dict[Partition, str]] = defaultdict(dict)
    for group, topic, number, worker in connection.execute(query("owners")):
        found[group][topic, number] = worker
    return found


def _handling(connection: Connection) -> dict[str, list[Handling]]:
    found: dict[str, list[tuple[str, list[dict[str, Any]]]]] = defaultdict(list)
    for group, worker, rows in connection.execute(query("handlings")):
        found[group].append((worker, rows))
    return {group: handlings(workers) for group, workers in found.items()}


def _summary(
    known: Known, name: str, found: _Found, owners: Mapping[Partition, str], handling: Sequence[Handling]
) -> GroupSummary:
    row = known.rows.get(name)
    behind, trends = found.lags.get(name, {}), found.trends.get(name, {})
    records = [one.lag for one in behind.values() if one.lag is not None]
    ages = [one.lag_seconds for one in behind.values() if one.lag_seconds is not None]
    waiting = {p: each for p, each in trends.items() if behind[p].lag}
    still = stalled(waiting, owners, handling)
    slower = [p for p, each in waiting.items() if each.movement == "falling behind"]
    return GroupSummary(
        group=name,
        members=row["members"] if row else 0,
        lag=sum(records) if records else None,
        lag_seconds=max(ages, default=None),
        parked=row["parked"] if row else 0,
        held=row["held"] if row else 0,
        dead=row["dead"] if row else 0,
        holds=holds_of(row) if row else (),
        ran=row is not None and bool(row["topic_ids"]),
        held_key=shown_key(row["held_key"]) if row else None,
        problem=None if found.ids is None else topic_problem(name, known.met(name), found.ids),
        stalled=_stalled_words(still, behind, handling) if still else None,
        behind=_behind_words(slower, trends, known.history(name, behind)) if slower else None,
    )


def _stalled_words(
    still: set[Partition], behind: Mapping[Partition, PartitionLag], handling: Sequence[Handling]
) -> str:
    """The partition whose next record has waited longest, and what is known of why."""
    first = max(still, key=lambda partition: (behind[partition].lag_seconds or 0, partition))
    one = behind[first]
    slow = blocker(first, one, (), "", handling, ())
    more = f" (and {len(still) - 1} more)" if len(still) > 1 else ""
    why = "" if slow is None else f": key {slow.by}, {slow.why}"
    return f"{first[0]}[{first[1]}]{more} stands at {one.committed}, {one.lag} records wait{why}"


def _behind_words(
    slower: Sequence[Partition], trends: Mapping[Partition, Trend], left: History | None
) -> str:
    came = sum(trends[partition].rate_in or 0 for partition in slower)
    done = sum(trends[partition].rate_out or 0 for partition in slower)
    names = ", ".join(f"{topic}[{number}]" for topic, number in slower[:3]) + ", ..." * (len(slower) > 3)
    limit = "" if left is None or left.rate is None else f"; history is held to {left.rate:g} a second"
    return f"{names}: {came:.1f} records come a second, {done:.1f} are done{limit}"
