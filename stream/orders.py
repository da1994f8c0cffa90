"""One key's life: where each of its events is, and what every group made of it. Reading changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import merge
from operator import attrgetter
from threading import Event
from typing import Any, Literal
from uuid import UUID

from psycopg.rows import class_row

from stream import database
from stream.config import Config
from stream.database import Connection, query
from stream.discovery import discover
from stream.errors import GroupError, ProjectImportError
from stream.events import Record, event_id_of, event_time, header
from stream.groups import ConsumerGroup
from stream.holds import held_groups
from stream.kafka.scans import Scan
from stream.kafka.search import Progress, records_of_key
from stream.project import Project
from stream.steps import Of, Step, in_order, kept_records, of_records, written_down
from stream.topics import dlq_topic, retry_topic

START_MISSED = "written before this group's start"
NEVER_RAN = "this group never ran on this database"


@dataclass(frozen=True)
class GroupOutcome:
    """What one group made of an event, by its ledger; without an outcome nothing yet, `reason` may say why: it failed
    and is tried again, or waits behind one that did.

    `at`: when the transaction of its effects began. `letter`: of a dead one; `holds`: its key waits for it. `steps`:
    how it came to that, in order, with the outcome itself where there is one.
    """

    group: str
    outcome: Literal["done", "skipped", "dead"] | None = None
    at: datetime | None = None
    attempts: int | None = None
    epoch: int | None = None
    worker: str | None = None
    reason: str | None = None
    letter: int | None = None
    holds: bool = False
    steps: Sequence[Step] = ()


@dataclass(frozen=True)
class Unpublished:
    """A row that is not in its topic: waiting for the relay, for `due_at`, or rejected with reason and error."""

    state: Literal["waiting", "scheduled", "rejected"]
    topic: str
    event_id: UUID
    type: str
    time: datetime
    created_at: datetime
    due_at: datetime | None
    reason: str | None
    error: str | None
    id: int


@dataclass(frozen=True)
class OrderEvent:
    """One event of the key. `time`: when it happened; `appended_at`: when it was written to the outbox.

    `repeats`: further offsets it was published at, by a relay that died between acknowledgement and delete.
    """

    event_id: UUID
    type: str | None
    topic: str
    partition: int | None
    offset: int | None
    time: datetime
    appended_at: datetime
    published_at: datetime | None
    groups: Sequence[GroupOutcome] = ()
    repeats: Sequence[int] = ()
    unpublished: Unpublished | None = None


@dataclass(frozen=True)
class Order:
    """One key's events, in the order in which they were published; those that are not yet come last."""

    key: bytes
    events: Sequence[OrderEvent]
    scans: Sequence[Scan]
    notes: Sequence[str]
    held: Sequence[str] = ()  # groups that run nothing now, of those that something waits for


@dataclass(frozen=True)
class Reader:
    """A group as far as this page needs it: what it handles and where it began."""

    name: str
    topics: Collection[str] = ()
    types: Collection[str] = ()
    ran: bool = False
    starts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    hold: str | None = None  # why it runs nothing now

    def silent_about(self, record: Record, type: str | None) -> GroupOutcome | None:
        """What to say where the ledger has nothing: None where the event is none of the group's business."""
        if record.topic not in self.topics or type not in self.types:
            return None
        if not self.ran:
            return GroupOutcome(self.name, reason=NEVER_RAN)
        start = self.starts.get(record.topic, {}).get(str(record.partition), 0)
        return GroupOutcome(self.name, reason=START_MISSED if record.offset < start else self.waits())

    def waits(self, reason: str | None = None) -> str | None:
        """Why something of it is not yet done: the group's hold stands before what is said of the event."""
        held = None if self.hold is None else f"its group is held ({self.hold})"
        return "; ".join(said for said in (held, reason) if said) or None


def life(
    config: Config,
    project: Project,
    key: bytes,
    *,
    seconds: float,
    progress: Progress | None = None,
    stopping: Event | None = None,
) -> Order:
    """Everything about one key. Reads the key's partition of each topic of the project, and of the groups' topics of
    retries and dead letters, for at most `seconds`, or until `stopping` is set.

    Raises Unreachable where broker or database do not answer.
    """
    groups, notes = _groups_of(project)
    with database.connect(
        config.database_url, application_name="stream-order", autocommit=True
    ) as connection:
        database.require_migrated(connection)
        # Rows first, records then: an event that is published in between is in both, never in neither.
        rows = _unpublished(connection, key)
        readers = _readers(connection, groups)
        topics = list(project.topics.topics)
        own = {topic for reader in readers for topic in (retry_topic(reader.name), dlq_topic(reader.name))}
        found = records_of_key(
            config, key, [*topics, *sorted(own)], seconds=seconds, progress=progress, stopping=stopping
        )
        records = [record for record in found.records if record.topic not in own]
        names = [reader.name for reader in readers]
        gone = kept_records(connection, names, _ids(records), key, topics)
        records = [*gone, *records]
        ids = _ids(records)
        outcomes = _outcomes(connection, readers, ids, key, topics)
        steps = written_down(connection, names, ids, key, topics)
    for of, calls in of_records(record for record in found.records if record.topic in own).items():
        steps.setdefault(of, []).extend(calls)
    notes += [f"topic {topic} does not exist on this cluster" for topic in found.missing if topic not in own]
    notes += [
        f"{record.position} was not found in its topic; a letter or a parked row has it" for record in gone
    ]
    events = assemble(records, [row for row in rows if row.topic not in own], readers, outcomes, steps)
    return Order(key, events, found.scans, notes, _held(readers, events))


def assemble(
    records: Iterable[Record],
    rows: Iterable[Unpublished],
    readers: Sequence[Reader],
    outcomes: Mapping[UUID, Sequence[GroupOutcome]],
    steps: Mapping[Of, Sequence[Step]],
) -> list[OrderEvent]:
    """Each event once: published ones by time, a topic's in its own order, then those that are not. Pure."""
    by_id: dict[UUID, list[Record]] = {}
    for record in records:
        by_id.setdefault(event_id_of(record), []).append(record)
    of_topic: dict[str, list[OrderEvent]] = {}
    for id, same in by_id.items():
        event = _published(id, same, readers, outcomes.get(id, ()), steps)
        of_topic.setdefault(event.topic, []).append(event)
    events = list(merge(*of_topic.values(), key=attrgetter("published_at")))
    return events + [_not_published(row) for row in rows if row.event_id not in by_id]


def _ids(records: Iterable[Record]) -> list[UUID]:
    return list({event_id_of(record) for record in records})


def appended_at(event_id: UUID, otherwise: datetime) -> datetime:
    """When an event was written: a UUIDv7 says so, to the millisecond; an id of another kind does not."""
    if event_id.version != 7:
        return otherwise
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=event_id.int >> 80)


def _published(
    id: UUID,
    same: Sequence[Record],
    readers: Sequence[Reader],
    outcomes: Sequence[GroupOutcome],
    steps: Mapping[Of, Sequence[Step]],
) -> OrderEvent:
    first, *again = same
    type, time = header(first.headers, "ce_type"), event_time(first.headers, first.timestamp)
    settled = {outcome.group for outcome in outcomes}
    silent = [reader.silent_about(first, type) for reader in readers if reader.name not in settled]
    return OrderEvent(
        event_id=id,
        type=type,
        topic=first.topic,
        partition=first.partition,
        offset=first.offset,
        time=time,
        appended_at=appended_at(id, time),
        published_at=event_time((), first.timestamp),
        groups=[
            _told(outcome, steps.get((id, outcome.group, outcome.epoch or 0), ()))
            for outcome in (*outcomes, *silent)
            if outcome is not None
        ],
        repeats=[record.offset for record in again],
    )


def _told(outcome: GroupOutcome, steps: Sequence[Step]) -> GroupOutcome:
    """The outcome with its steps; it is the last of them, unless it is a death, which has its letter's."""
    ends: list[Step] = []
    if outcome.outcome is not None and outcome.at is not None and outcome.letter is None:
        ends = [Step(outcome.at, outcome.outcome, outcome.attempts, outcome.worker, reason=outcome.reason)]
    return replace(outcome, steps=tuple(in_order([*steps, *ends])))


def _not_published(row: Unpublished) -> OrderEvent:
    return OrderEvent(
        row.event_id, row.type, row.topic, None, None, row.time, row.created_at, None, unpublished=row
    )


def _groups_of(project: Project) -> tuple[dict[str, ConsumerGroup], list[str]]:
    """The project's groups; a page about an order must not need the libraries that handlers import."""
    try:
        return discover(project), []
    except (ProjectImportError, GroupError) as error:
        return {}, [f"groups without an outcome are not shown: {error.message.splitlines()[0]}"]


def _held(readers: Sequence[Reader], events: Iterable[OrderEvent]) -> list[str]:
    waiting = {
        outcome.group
        for event in events
        for outcome in event.groups
        if outcome.outcome is None and outcome.reason not in (START_MISSED, NEVER_RAN)
    }
    return [reader.name for reader in readers if reader.hold is not None and reader.name in waiting]


def _unpublished(connection: Connection, key: bytes) -> list[Unpublished]:
    with connection.cursor(row_factory=class_row(Unpublished)) as cursor:
        return cursor.execute(query("waiting_of_key"), {"key": key}).fetchall()


def _readers(connection: Connection, groups: Mapping[str, ConsumerGroup]) -> list[Reader]:
    rows = connection.execute("select consumer_group, start_offsets from stream.group_state")
    starts: dict[str, Any] = dict(rows.fetchall())
    holds = held_groups(connection, starts)
    return [
        Reader(
            name,
            groups[name].topics if name in groups else (),
            groups[name].handlers if name in groups else (),
            name in starts,
            starts.get(name, {}),
            holds.get(name),
        )
        for name in sorted(groups.keys() | starts.keys())
    ]


def _outcomes(
    connection: Connection, readers: Sequence[Reader], ids: Sequence[UUID], key: bytes, topics: Sequence[str]
) -> dict[UUID, list[GroupOutcome]]:
    """What the ledger says, and, of what has no outcome, why not."""
    found: dict[UUID, list[GroupOutcome]] = {}
    of = {reader.name: reader for reader in readers}
    asked = {"groups": list(of), "ids": list(ids), "key": key, "topics": list(topics)}
    rows = connection.execute(query("outcomes_of_events"), asked).fetchall()
    rows += connection.execute(query("parked_of_events"), asked).fetchall()
    for event_id, *columns in rows:
        outcome, known = GroupOutcome(*columns), found.setdefault(event_id, [])
        if outcome.outcome is not None:
            known.append(outcome)
        elif (outcome.group, outcome.epoch) not in {(other.group, other.epoch) for other in known}:
            known.append(replace(outcome, reason=of[outcome.group].waits(outcome.reason)))
    return found
