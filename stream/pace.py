"""Pace: `rate="10/s"` held over all processes of a group, so that nothing that comes back at once (an outage's end, a
replay, a rewind) knocks a provider down again; and `catch_up_rate`, of history only, so that a new group leaves room
for those that are there.

Slots are taken ahead from group_state.next_slot, in a short transaction of their own, a tenth of a second's worth at
a time. Slots stand a little further apart than the rate asks, and a thread that is late for its slot lets it go and
takes the next: so no second ever has more starts than the rate.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping

import psycopg

from stream import database
from stream.database import Connection, query
from stream.errors import Unreachable
from stream.events import Record
from stream.groups import ConsumerGroup
from stream.offsets import Partition

MARGIN = 0.06  # of the rate, given away
LATE_S = 0.02  # well below what the margin is of a second: a handler needs some of it for its first step
NEAR_S = 0.1  # a transaction is begun so long before its slot, not earlier


class NotNow(Exception):
    """The group is stopping, or slots cannot be had: the event is not started."""


class Pace:
    """The turns of one process's workers. Safe between threads; `rate` in events a second."""

    def __init__(self, database_url: str, group: str, rate: float, stopping: threading.Event) -> None:
        self._url = database_url
        self._group = group
        self._step_s = (1 + MARGIN) / rate
        self._together = max(1, int(rate / 10))
        self._stopping = stopping
        self._lock = threading.Lock()
        self._slots: deque[float] = deque()  # monotonic times
        self._connection: Connection | None = None
        self._mine = threading.local()

    def approach(self) -> None:
        """Wait until this thread's next slot is near: before a transaction is begun. Raises NotNow."""
        slot = self._reserved()
        self._wait_until(slot - NEAR_S)

    def give_back(self) -> None:
        """This thread starts nothing now: its slot is for others."""
        slot: float | None = getattr(self._mine, "slot", None)
        if slot is not None:
            self._mine.slot = None
            with self._lock:
                self._slots.appendleft(slot)

    def close(self) -> None:
        """To be called once no worker takes a turn any more."""
        if self._connection is not None:
            self._connection.close()

    def take_turns(self, count: int) -> None:
        """Wait until so many events may start. Raises NotNow."""
        for _ in range(count):
            while True:
                slot = self._reserved()
                self._wait_until(slot)
                self._mine.slot = None
                if time.monotonic() - slot <= LATE_S:
                    break

    def _reserved(self) -> float:
        """This thread's next slot."""
        slot: float | None = getattr(self._mine, "slot", None)
        if slot is None or slot < time.monotonic() - LATE_S:
            slot = self._mine.slot = self._next()
        return slot

    def _next(self) -> float:
        with self._lock:
            while True:
                now = time.monotonic()
                while self._slots:
                    slot = self._slots.popleft()
                    if slot >= now - LATE_S:
                        return slot
                self._book()

    def _book(self) -> None:
        arguments = {"group": self._group, "step_s": self._step_s, "count": self._together}
        try:
            if self._connection is None or self._connection.closed:
                self._connection = database.connect(
                    self._url,
                    application_name=f"stream-{self._group}-pace",
                    autocommit=True,
                    settings={"statement_timeout": "10s"},
                )
            row = self._connection.execute(query("book_slots"), arguments).fetchone()
        except (psycopg.Error, Unreachable) as error:
            if self._connection is not None:
                self._connection.close()
            raise NotNow from error
        if row is None:
            raise NotNow
        first = time.monotonic() + float(row[0])
        self._slots.extend(first + n * self._step_s for n in range(self._together))

    def _wait_until(self, at: float) -> None:
        left = at - time.monotonic()
        if self._stopping.is_set() or (left > 0 and self._stopping.wait(left)):
            raise NotNow


class Paces:
    """Which turns a run of records takes: history's, where it holds a record that was in its topic before the group's
    first start (before `history`, to be set before the first run), else the group's own. Safe between threads."""

    def __init__(self, own: Pace | None, catch_up: Pace | None) -> None:
        self.history: Mapping[Partition, int] = {}
        self._own = own
        self._catch_up = catch_up
        self._mine = threading.local()

    @classmethod
    def of(cls, group: ConsumerGroup, database_url: str, stopping: threading.Event) -> Paces | None:
        """None where the group runs as fast as it can."""
        own, catch_up = group.rate, group.catch_up_rate
        if own is None and catch_up is None:
            return None
        made = [
            None if rate is None else Pace(database_url, group.name, rate, stopping)
            for rate in (own, catch_up)
        ]
        slower = catch_up is not None and (own is None or catch_up < own)
        return cls(made[0], made[1] if slower else made[0])

    def begin(self, records: Iterable[Record]) -> None:
        """This thread is to apply these next."""
        history = self.history
        old = any(record.offset < history.get((record.topic, record.partition), 0) for record in records)
        self._mine.pace = self._catch_up if old else self._own

    def approach(self) -> None:
        """Wait until this thread's next slot is near: before a transaction is begun. Raises NotNow."""
        if (pace := self._of_run()) is not None:
            pace.approach()

    def take_turns(self, count: int) -> None:
        """Wait until so many events may start. Raises NotNow."""
        if (pace := self._of_run()) is not None:
            pace.take_turns(count)

    def give_back(self) -> None:
        """This thread starts nothing now: its slot is for others."""
        if (pace := self._of_run()) is not None:
            pace.give_back()

    def close(self) -> None:
        """To be called once no worker takes a turn any more."""
        for pace in (self._own, self._catch_up):
            if pace is not None:
                pace.close()

    def _of_run(self) -> Pace | None:
        pace: Pace | None = getattr(self._mine, "pace", None)
        return pace
