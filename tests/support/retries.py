"""A group's execution that parks what fails, and the retry topic without a broker: its rows, taken from the tables."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import psycopg

from stream import ConsumerGroup
from stream.config import RetrySettings
from stream.epochs import Epochs
from stream.events import Record
from stream.execution import Execution
from stream.failing import Failing
from stream.health import Health
from stream.lanes import Run
from stream.outcomes import Outcome
from stream.parking import Parking
from stream.policy import FailurePolicy
from stream.project import Project

USUAL = RetrySettings()

_offsets = itertools.count()


class RetryingWorker:
    """A worker of group testers, with the handler of a test. `parking_class`: to leave something out on purpose."""

    def __init__(
        self,
        project: Project,
        url: str,
        handler: Any,
        *,
        name: str = "w1",
        settings: RetrySettings = USUAL,
        health: Health | None = None,
        parking_class: type[Parking] = Parking,
        may_postpone: Callable[[int], bool] = lambda _: False,
        epochs: Epochs | None = None,
        **options: Any,
    ) -> None:
        self.group = ConsumerGroup("testers", topics=["things"], start="beginning", **options)
        self.group.on("Happened")(handler)
        self.health = health or Health(settings)
        self.stopping = threading.Event()
        failing = Failing(
            parking_class("testers", name, on_dead=self.group.on_dead),
            FailurePolicy(self.group.attempts, self.group.give_up_after.total_seconds(), settings),
            self.health,
            holds_dead=self.group.on_dead == "hold",
            may_postpone=may_postpone,
        )
        self.execution = Execution(
            self.group, project, url, worker=name, stopping=self.stopping, failing=failing, epochs=epochs
        )

    def run(self, *records: Record) -> list[Outcome]:
        return self.execution.run(Run(list(records)))

    def kinds(self, *records: Record) -> list[str]:
        return [outcome.kind for outcome in self.run(*records)]

    def wake(self, *records: Record, **options: Any) -> list[str]:
        """Run retry records; what became of the rows they woke."""
        run = Run(list(records), retry=True, **options)
        kinds = {outcome.kind for outcome in self.execution.run(run)}
        assert kinds <= {"woken", "unrun"}
        return [outcome.kind for _, outcome in run.woken]

    def wake_all(self, *records: Record) -> None:
        """As `wake`, each again for as long as somebody else holds its key."""
        left = list(records)
        while left:
            outcomes = self.execution.run(Run(left, retry=True))
            left = [record for record, outcome in zip(left, outcomes, strict=True) if not outcome.finished]


def retry_records(
    conn: psycopg.Connection[Any], topic: str = "testers.retry", *, due_only: bool = False
) -> list[Record]:
    """Takes the topic's rows out of outbox and scheduled rows, as the relay publishes them."""
    when = "and due_at <= clock_timestamp()" if due_only else ""
    columns = "key, payload, header_names, header_values"
    rows = conn.execute(
        f"with d as (delete from stream.scheduled where topic = %(t)s {when} returning *) "
        f"select {columns} from d order by due_at, id",
        {"t": topic},
    ).fetchall()
    rows += conn.execute(
        f"with d as (delete from stream.outbox where topic = %(t)s returning *) select {columns} from d order by id",
        {"t": topic},
    ).fetchall()
    conn.commit()
    return [
        Record(topic, 0, next(_offsets), key, value, list(zip(names, values, strict=True)), 0)
        for key, value, names, values in rows
    ]


def make_due(conn: psycopg.Connection[Any]) -> None:
    """Whatever waits for its next try waits no more."""
    conn.execute("update stream.parked set due_at = clock_timestamp() where due_at is not null")
    conn.execute("update stream.scheduled set due_at = clock_timestamp() where topic = 'testers.retry'")
    conn.commit()


def parked(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """(offset, attempts, is it the head, held) of each row, in order."""
    rows = conn.execute(
        'select "offset", attempts, due_at is not null, held from stream.parked order by partition, "offset"'
    ).fetchall()
    conn.commit()
    return rows
