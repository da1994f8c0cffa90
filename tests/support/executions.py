"""Handlers on events and a real database, without a broker."""

from __future__ import annotations

import threading
from typing import Any

from stream import ConsumerGroup
from stream.events import Record
from stream.execution import Execution
from stream.lanes import Run
from stream.outcomes import Outcome
from stream.project import Project

INSERT = "insert into effect (event_id, key, n) values (%s, %s, %s)"


class Worker:
    """A group's execution with the handler of a test."""

    def __init__(self, project: Project, url: str, handler: Any, **options: Any) -> None:
        self.group = ConsumerGroup("testers", topics=["things"], start="beginning", **options)
        self.group.on("Happened")(handler)
        self.stopping = threading.Event()
        self.execution = Execution(self.group, project, url, worker="w1", stopping=self.stopping)

    def run(self, *records: Record) -> list[Outcome]:
        return self.execution.run(Run(list(records)))

    def kinds(self, *records: Record) -> list[str]:
        return [outcome.kind for outcome in self.run(*records)]
