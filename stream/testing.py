"""Testing a group's handlers on events, against a real database and without a broker.

    from stream.testing import run

    def test_an_order_gets_an_invoice():
        ran = run("invoicing", [("OrderPlaced", "536365", {...})], database_url=DATABASE_URL)
        assert ran.kinds == ["done"]
        assert [event.type for event in ran.emitted] == ["InvoiceIssued"]

The engine's own code runs: events are encoded and decoded with the project's schemas, claimed in the ledger, and
applied with their effects in transactions of up to the group's `batch` events. Only Kafka and further tries of
failed events are missing.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stream import app, database
from stream.discovery import discover, select
from stream.events import Record, cloud_headers
from stream.execution import Execution
from stream.groups import ConsumerGroup
from stream.lanes import LaneKey, Run, lane_of
from stream.outbox import Outbox, Prepared
from stream.outcomes import UNRUN, Outcome
from stream.project import Project

_offsets = itertools.count()


@dataclass(frozen=True)
class Emitted:
    """An event that a handler emitted, committed to the outbox; `data` is as another group's handler sees it."""

    event_id: uuid.UUID
    type: str
    key: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Ran:
    """What became of the events, one outcome each in their order, and what was emitted."""

    outcomes: list[Outcome]
    emitted: list[Emitted]

    @property
    def kinds(self) -> list[str]:
        """done, duplicate, skipped, failed, or unrun: behind a failed one of its key."""
        return [outcome.kind for outcome in self.outcomes]


def run(
    group: ConsumerGroup | str,
    events: Iterable[tuple[str, str, Mapping[str, Any]]],
    *,
    database_url: str,
    project: Project | Path | str = ".",
) -> Ran:
    """Run a group's handlers on `(type, key, data)` events, each tried once; returns what became of them.

    The database gets the package's migrations and the tables of the project's groups first, so an empty one will
    do; effects stay in it. A handler's exception is its event's outcome: `outcomes[0].error`. Raises what is wrong
    with the call: InvalidEvent, GroupError, Unreachable.
    """
    project = project if isinstance(project, Project) else Project(project)
    groups = discover(project)
    group = group if isinstance(group, ConsumerGroup) else select(groups, [group])[0]
    group.check(project)
    records = [_record(project, type, key, data) for type, key, data in events]
    with database.connect(database_url, application_name="stream-testing") as connection:
        database.migrate(connection)
        for _, sql in app.group_tables(project, groups):
            connection.execute(sql.encode())
    outbox = _RememberingOutbox(project)
    execution = Execution(
        group, project, database_url, worker="testing", stopping=threading.Event(), outbox=outbox
    )
    try:
        outcomes = _run_all(execution, records, group.batch)
    finally:
        execution.close()
    return Ran([outcomes[record.offset] for record in records], outbox.committed(database_url))


def _run_all(execution: Execution, records: list[Record], batch: int) -> dict[int, Outcome]:
    """Outcome by offset. As in a worker, a failed event keeps the later ones of its key from running."""
    outcomes = {record.offset: UNRUN for record in records}
    blocked: set[LaneKey] = set()
    for start in range(0, len(records), batch):
        ready = [record for record in records[start : start + batch] if lane_of(record) not in blocked]
        for record, outcome in zip(ready, execution.run(Run(ready)), strict=True):
            outcomes[record.offset] = outcome
            if not outcome.finished:
                blocked.add(lane_of(record))
    return outcomes


def _record(project: Project, type: str, key: str, data: Mapping[str, Any]) -> Record:
    now = datetime.now(UTC)
    headers = cloud_headers(str(uuid.uuid4()), type, now)
    return Record(
        topic=project.topics.topic_of(type),
        partition=0,
        offset=next(_offsets),
        key=key.encode(),
        value=project.codec.encode(type, data),
        headers=[(name, value) for name, value in headers if not isinstance(value, str)],
        timestamp=int(now.timestamp() * 1000),
    )


class _RememberingOutbox(Outbox):
    """Works as ever, and knows afterwards what of it was committed."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self._prepared: list[Prepared] = []

    def prepare(self, type: str, **arguments: Any) -> Prepared:
        prepared = super().prepare(type, **arguments)
        self._prepared.append(prepared)
        return prepared

    def committed(self, database_url: str) -> list[Emitted]:
        ids = [prepared.event_id for prepared in self._prepared]
        with database.connect(database_url, application_name="stream-testing") as connection:
            rows = connection.execute(database.query("committed_events"), {"ids": ids})
            there = {event_id for (event_id,) in rows}
        return [
            Emitted(event.event_id, event.type, event.key.decode(), self._codec.decode(event.payload)[1])
            for event in self._prepared
            if event.event_id in there
        ]
