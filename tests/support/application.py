"""The repository's own groups, applied to events in a test's database: the engine without a broker.

Unlike `stream.testing.run`, an event keeps its id, so that it can be applied again.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg

from stream import app
from stream.discovery import discover, select
from stream.events import Record, cloud_headers
from stream.execution import Execution
from stream.lanes import Run
from stream.outcomes import Outcome
from stream.project import Project

_offsets = itertools.count()


@dataclass(frozen=True)
class Given:
    """An event to apply."""

    type: str
    key: str
    data: Mapping[str, Any]
    time: datetime = datetime(2010, 12, 1, 8, 26, tzinfo=UTC)
    id: uuid.UUID = field(default_factory=uuid.uuid4)


def a_return(order: Mapping[str, Any]) -> dict[str, Any]:
    """The data of the OrderReturned that takes back an OrderPlaced of these data."""
    same = {name: order[name] for name in ("customer_id", "currency", "country", "lines")}
    return {**same, "returned_at": order["placed_at"]}


def a_cancellation(order: Mapping[str, Any]) -> dict[str, Any]:
    """The data of the OrderCancelled that calls off an OrderPlaced of these data."""
    same = {name: order[name] for name in ("customer_id", "currency", "lines")}
    return {**same, "cancelled_at": order["placed_at"], "reason": "changed my mind"}


class Application:
    """One group of the project on a database with all groups' tables; calls may come from several threads."""

    def __init__(self, group: str, project: Project, database_url: str) -> None:
        self._project, self._database_url = project, database_url
        groups = discover(project)
        [self._group] = select(groups, [group])
        with psycopg.connect(database_url) as connection:
            for _, sql in app.group_tables(project, groups):
                connection.execute(sql.encode())

    def apply(self, *events: Given) -> list[Outcome]:
        """Apply the events together, as many in one transaction as the group's batch says."""
        execution = Execution(
            self._group, self._project, self._database_url, worker="test", stopping=threading.Event()
        )
        records = [self._record(event) for event in events]
        try:
            runs = [records[n : n + self._group.batch] for n in range(0, len(records), self._group.batch)]
            return [outcome for run in runs for outcome in execution.run(Run(run))]
        finally:
            execution.close()

    def emitted(self) -> list[tuple[str, str, dict[str, Any]]]:
        """(type, key, data) of every event emitted so far, in order."""
        with psycopg.connect(self._database_url) as connection:
            rows = connection.execute(
                "select key, payload from stream.outbox union all"
                " (select key, payload from stream.scheduled order by id)"
            ).fetchall()
        decoded = [(bytes(key).decode(), *self._project.codec.decode(payload)) for key, payload in rows]
        return [(type, key, data) for key, type, data in decoded]

    def forget(self) -> None:
        """Empty the ledger: what was applied can be applied again."""
        with psycopg.connect(self._database_url) as connection:
            connection.execute("delete from stream.ledger")

    def _record(self, event: Given) -> Record:
        return Record(
            topic=self._project.topics.topic_of(event.type),
            partition=0,
            offset=next(_offsets),
            key=event.key.encode(),
            value=self._project.codec.encode(event.type, event.data),
            headers=cloud_headers(str(event.id), event.type, event.time),
            timestamp=int(event.time.timestamp() * 1000),
        )
