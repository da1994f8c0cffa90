"""Watchdog: handlers that do not return. A thread cannot be ended; its process can.

Past its deadline a handler is named, once, with its stack. Past twice its timeout the process ends with code 7; what
the handler was at is then a suspect (suspects.py). `ctx.heartbeat()` moves the deadline of work that is just long.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback

import structlog

from stream.context import Context
from stream.events import Event
from stream.meters import Durations

log = structlog.get_logger("stream.watchdog")

EXIT_CODE = 7
TICK_S = 0.5
MOMENT_S = 1.0


class Desk:
    """What one worker thread has in hand; written by it, read by the watchdog. `durations`: how long handlers took."""

    def __init__(self, durations: Durations | None = None) -> None:
        self.context: Context | None = None
        self.thread: int | None = None
        self.durations = durations or {}


class Watchdog:
    """Watches the desks of one group's workers. `timeout` in seconds."""

    def __init__(self, group: str, timeout: float) -> None:
        self._group = group
        self._timeout = timeout
        self._desks: list[Desk] = []
        self._warned: set[int] = set()  # of contexts
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{group}-watchdog", daemon=True)

    def desk(self, durations: Durations | None = None) -> Desk:
        """A desk for one more worker."""
        self._desks.append(Desk(durations))
        return self._desks[-1]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def progress(self) -> str | None:
        """What handlers last said of themselves."""
        contexts = [desk.context for desk in self._desks]  # once each: they come and go meanwhile
        said = [context.progress for context in contexts if context is not None]
        return "; ".join(text for text in said if text) or None

    def stalled(self) -> int:
        """How many handlers are past their deadline."""
        now = time.monotonic()
        contexts = [desk.context for desk in self._desks]
        return sum(context is not None and now >= context.deadline for context in contexts)

    def in_hand(self) -> list[tuple[Event, float]]:
        """What handlers have been at for longer than a moment, and for how many seconds."""
        contexts = [desk.context for desk in self._desks]  # as above
        now = time.monotonic()
        return [
            (event, now - context.begun)
            for context in contexts
            if context is not None and now - context.begun > MOMENT_S
            for event in context.first_events()
        ]

    def _run(self) -> None:
        while not self._stopping.wait(min(TICK_S, self._timeout / 4)):
            for desk in self._desks:
                context = desk.context
                if context is not None:
                    self._look(desk, context, time.monotonic())

    def _look(self, desk: Desk, context: Context, now: float) -> None:
        if now < context.deadline:
            self._warned.discard(id(context))
            return
        over = now >= context.deadline + self._timeout
        if over or id(context) not in self._warned:
            self._warned.add(id(context))
            frame = sys._current_frames().get(desk.thread or 0)
            log.error(
                "handler.does_not_return" if over else "handler.stalled",
                group=self._group,
                **context.named(),
                timeout_seconds=self._timeout,
                stack="".join(traceback.format_stack(frame)) if frame is not None else None,
                meaning="the process ends, to be started again; the event is tried alone then"
                if over
                else None,
                hint=f"stream groups describe {self._group}",
            )
        if over:
            sys.stderr.flush()
            os._exit(EXIT_CODE)
