"""Surveys: what a rewind would do, found out from broker and database. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from stream.config import Config
from stream.database import Connection, query
from stream.errors import Refused, UsageError
from stream.events import event_id_of
from stream.kafka import positions
from stream.kafka.reader import committed
from stream.offsets import Partition
from stream.rewinds import Mode, PartitionState, RewindPlan, Target, in_scope, plan
from stream.views import clock

Scope = Sequence[tuple[str, frozenset[int] | None]]
COUNT_S = 10.0  # how long records of the range are looked up in the ledger
MOST_COUNTED = 200_000


@dataclass(frozen=True)
class Survey:
    """A plan, and what its range holds. `first_record_at`: of partitions where something runs again. `in_ledger`: how
    many of the `looked_up` records were applied; `whole`: that is all records there are. `parked`: rows that wait;
    `dead`: open letters."""

    plan: RewindPlan
    first_record_at: Mapping[Partition, datetime]
    looked_up: int
    in_ledger: int
    whole: bool
    parked: int
    dead: int


def resolve(config: Config, group: str, topics: Collection[str], target: Target, scope: Scope) -> RewindPlan:
    """The plan for the group's `topics`, by what the broker says now.

    Raises UsageError where the scope or the file names what is not there, Refused where the target cannot be resolved,
    CheckFailed where a topic is missing, Unreachable.
    """
    if target.group is not None:
        target = replace(target, offsets=committed(config, target.group))
        if not any(topic in topics for topic, _ in target.offsets):
            raise Refused(
                f"group {target.group!r} has no committed offset for any topic of group {group!r}",
                hint="stream groups list",
            )
    offsets = committed(config, group)
    bounds = positions.bounds(config, topics)
    chosen = in_scope(bounds, scope)
    if target.scenario == "from-file":
        missing = sorted(target.offsets.keys() - bounds.keys())
        if missing:
            topic, number = missing[0]
            raise UsageError(f"--from-file: group {group!r} reads no partition {topic!r}[{number}]")
    ats = {} if target.time is None else positions.offsets_at(config, chosen, target.time)
    states = {each: PartitionState(offsets.get(each), *bounds[each], ats.get(each)) for each in chosen}
    return plan(group, target, states)


def check_ledger(config: Config, connection: Connection, found: RewindPlan, mode: Mode | None) -> None:
    """Raise Refused where the ledger does not remember any more what was applied: its rows were pruned."""
    row = connection.execute(query("group_state"), [found.group]).fetchone()
    pruned: datetime | None = None if row is None else row[3]
    if pruned is None or not found.ranges:
        return
    remembered = positions.offsets_at(config, found.ranges.keys(), pruned)
    for (topic, number), (start, end) in sorted(found.ranges.items()):
        first = remembered[topic, number]
        if start < (end if first is None else first):
            raise Refused(
                f"group {found.group!r}: the ledger was pruned before {clock(pruned)}, and {topic}[{number}] would go"
                f" back to offset {start}, before that: what was applied there would be applied twice",
                hint=f"stream rewind --group {found.group} --to-datetime {clock(pruned)} --{mode or 'repair'}",
            )


def survey(
    config: Config,
    connection: Connection,
    found: RewindPlan,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Survey:
    """Look at what the plan's range holds; `progress` gets the number of records looked up, and of all.

    Records are looked up in the ledger for some seconds, and up to a number: then `Survey.whole` is false.
    """
    ranges = found.ranges
    times = positions.record_times(config, {each: start for each, (start, _) in ranges.items()})
    looked_up, in_ledger, whole = _count_applied(config, connection, found, progress)
    arguments: dict[str, Any] = {
        "group": found.group,
        "topics": [topic for topic, _ in ranges],
        "partitions": [number for _, number in ranges],
        "starts": [start for start, _ in ranges.values()],
        "ends": [end for _, end in ranges.values()],
    }
    [(parked, dead)] = connection.execute(query("failed_in_ranges"), arguments)
    return Survey(found, times, looked_up, in_ledger, whole, parked, dead)


def _count_applied(
    config: Config, connection: Connection, found: RewindPlan, progress: Callable[[int, int], None]
) -> tuple[int, int, bool]:
    """How many records of the range were looked up in the ledger, how many are there, and whether these are all."""
    looked_up = in_ledger = 0
    deadline = time.monotonic() + COUNT_S
    for records in positions.records_in(config, found.ranges):
        arguments = {
            "group": found.group,
            "ids": "{" + ",".join(event_id_of(record).hex for record in records) + "}",
            "epochs": [0] * len(records),
        }
        applied = {id for id, _ in connection.execute(query("applied"), arguments)} if records else set()
        in_ledger += sum(event_id_of(record) in applied for record in records)
        looked_up += len(records)
        progress(looked_up, found.total)
        if looked_up >= MOST_COUNTED or time.monotonic() > deadline:
            return looked_up, in_ledger, False
    return looked_up, in_ledger, True
