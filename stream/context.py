"""What a handler gets beside its event: the Context."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import structlog

from stream.connection import HandlerConnection
from stream.events import Event
from stream.outbox import Outbox, Prepared


class Context:
    """The handler's access to its transaction and to what is known about this try. Valid until the handler returns.

    `db`: the connection all effects go through. `attempt`: number of this try, from 1. `epoch`: 0, or the number of
    a deliberate second run of history. `deadline`: in `time.monotonic()` seconds, when the handler should be done.
    """

    __slots__ = (
        "_events",
        "_group",
        "_outbox",
        "_timeout",
        "attempt",
        "begun",
        "db",
        "deadline",
        "emitted",
        "epoch",
        "progress",
        "skipped",
    )

    def __init__(
        self,
        db: HandlerConnection,
        outbox: Outbox,
        group: str,
        events: list[Event],
        attempt: int,
        epoch: int,
        timeout: float,
    ) -> None:
        self.db = db
        self.attempt = attempt
        self.epoch = epoch
        self.begun = time.monotonic()
        self.deadline = self.begun + timeout
        self.emitted: list[Prepared] | None = None
        self.skipped: str | None = None
        self.progress: str | None = None
        self._outbox = outbox
        self._group = group
        self._events = events
        self._timeout = timeout

    def emit(
        self,
        type: str,
        *,
        key: str,
        data: Mapping[str, Any],
        id: str | uuid.UUID | None = None,
        time: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        delay: timedelta | float | None = None,
        debounce: str | None = None,
        max_wait: timedelta | float | None = None,
    ) -> uuid.UUID:
        """Append an event to the outbox in this transaction; returns its event id. Arguments as `Outbox.append`.

        Validated at once (raises InvalidEvent), written as the transaction's last statement: its lock on the
        key is not held while handlers work.
        """
        prepared = self._outbox.prepare(
            type,
            key=key,
            data=data,
            id=id,
            time=time,
            headers=headers,
            delay=delay,
            debounce=debounce,
            max_wait=max_wait,
        )
        if self.emitted is None:
            self.emitted = []
        self.emitted.append(prepared)
        return prepared.event_id

    def skip(self, reason: str) -> None:
        """Note that there was nothing to do, and why: the event is done, with ledger outcome `skipped`.

        Does not leave the handler: `return ctx.skip("no customer")`.
        """
        self.skipped = reason

    def heartbeat(self, progress: str | None = None) -> None:
        """Say that long work goes on: moves `deadline`, and keeps the transaction from being taken for a dead one.

        `progress` is shown with the group: "page 40 of 200".
        """
        self.deadline = time.monotonic() + self._timeout
        self.progress = None if progress is None else str(progress)[:500]
        self.db.touch()

    def first_events(self) -> list[Event]:
        """The events in hand, of each partition the first: no offset passes it before the handler returns."""
        first: dict[tuple[str, int], Event] = {}
        for event in self._events:
            first.setdefault((event.topic, event.partition), event)
        return list(first.values())

    def shown_events(self) -> list[str]:
        """The events in hand, for logs: type, key and id of the first few."""
        return [f"{event.type} {event.key!r:.100} {event.id}" for event in self._events[:5]]

    @property
    def log(self) -> Any:
        """A structlog logger that names group, event, type and key."""
        first = self._events[0]
        bound = structlog.get_logger("stream.handler").bind(group=self._group, attempt=self.attempt)
        if len(self._events) == 1:
            return bound.bind(event_id=str(first.id), type=first.type, key=first.key)
        return bound.bind(type=first.type, events=len(self._events))
