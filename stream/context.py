"""What a handler gets beside its event: the Context."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import structlog

from stream import spans
from stream.connection import HandlerConnection
from stream.events import TRACEPARENT, TRACESTATE, Event, header
from stream.outbox import Outbox, Prepared
from stream.signals import event_fields

MOST_TRACESTATE = 512  # characters, as its standard asks for


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
        key is not held while handlers work. It goes on with the trace of the handler's event, unless `headers` has a
        `traceparent`; out of a list of events, which have a trace each, it has none.
        """
        prepared = self._outbox.prepare(
            type,
            key=key,
            data=data,
            id=id,
            time=time,
            headers=self._traced(headers),
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

    def named(self) -> dict[str, object]:
        """What a line of the log says of what is in hand: of one event all, of a list which are the first few."""
        first = self._events[0]
        if len(self._events) == 1:
            key = None if first.key is None else first.key.encode()
            return event_fields(first, key, first.id, first.type, self.attempt)
        shown = [f"{event.type} {event.key!r:.100} {event.id}" for event in self._events[:5]]
        return {"type": first.type, "attempt": self.attempt, "count": len(self._events), "events": shown}

    def first_events(self) -> list[Event]:
        """The events in hand, of each partition the first: no offset passes it before the handler returns."""
        first: dict[tuple[str, int], Event] = {}
        for event in self._events:
            first.setdefault((event.topic, event.partition), event)
        return list(first.values())

    @property
    def log(self) -> Any:
        """A structlog logger that names the group, and the event: its place, key, id, type, attempt and trace."""
        return structlog.get_logger("stream.handler").bind(group=self._group, **self.named())

    def _traced(self, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        if len(self._events) != 1 or TRACEPARENT in (headers or ()) or spans.on():  # they know where we are
            return headers
        event = self._events[0]
        parent = event.traceparent
        if parent is None:
            return headers
        state = header(event.headers, TRACESTATE) or ""
        usable = state.isascii() and state.isprintable() and 0 < len(state) <= MOST_TRACESTATE
        return {TRACEPARENT: parent, **({TRACESTATE: state} if usable else {}), **(headers or {})}
