"""Pace: `rate="10/s"` held over all processes of a group, so that nothing that comes back at once (an outage's end, a
replay, a rewind) knocks a provider down again; and `catch_up_rate`, of history only, so that a new group leaves room
for those that are there. A rewind may set a lower one, for as long as history runs again.

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
from stream.offsets import Partition, Progress

MARGIN = 0.06  # of the rate, given away
MOST = 1000.0
LATE_S = 0.02  # well below what the margin is of a second: a handler needs some of it for its first step
NEAR_S = 0.1  # a transaction is begun so long before its slot, not earlier


class NotNow(Exception):
    """The group is stopping, or slots cannot be had: the event is not started."""


class Pace:
    """The turns of one process's workers. Safe between threads; `rate` in events a second, None: no turns."""

    def __init__(self, database_url: str, group: str, rate: float | None, stopping: threading.Event) -> None:
        self.rate = rate
        self._own = rate
        self._url = database_url
        self._group = group
        self._stopping = stopping
        self._lock = threading.Lock()
        self._slots: deque[float] = deque()  # monotonic times
        self._connection: Connection | None = None
        self._mine = threading.local()

    def limit(self, rate: float | None) -> None:
        """A rewind's rate; None once it has none any more. The lower of it and the group's own holds."""
        self.rate = min((each for each in (self._own, rate) if each is not None), default=None)

    def approach(self) -> None:
        """Wait until this thread's next slot is near: before a transaction is begun. Raises NotNow."""
        if self.rate is None:
            return
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
            while self.rate is not None:
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
        rate = self.rate or MOST  # it ended meanwhile
        step_s, together = (1 + MARGIN) / rate, max(1, int(rate / 10))
        arguments = {"group": self._group, "step_s": step_s, "count": together}
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
        self._slots.extend(first + n * step_s for n in range(together))

    def _wait_until(self, at: float) -> None:
        left = at - time.monotonic()
        if self._stopping.is_set() or (left > 0 and self._stopping.wait(left)):
            raise NotNow


class Paces:
    """Which turns a run of records takes: history's, where it holds a record that was in its topic before the group's
    first start (before `history`, to be set before the first run), else the group's own. Safe between threads.

    `rate`: the lowest that may hold, which is history's as long as some is left; None where everything runs as fast as
    it can.
    """

    def __init__(self, own: Pace, catch_up: Pace) -> None:
        self.history: Mapping[Partition, int] = {}
        self._own = own
        self._catch_up = catch_up
        self._limit: float | None = None
        self._history_left = True
        self._seen = -1  # the generation whose partitions have all passed history
        self._mine = threading.local()
        # Asked for every run and every transaction, so it is kept.
        self.rate = self._lowest()

    @classmethod
    def of(cls, group: ConsumerGroup, database_url: str, stopping: threading.Event) -> Paces:
        """As the group says; the lower of two rates holds."""
        own = Pace(database_url, group.name, group.rate, stopping)
        rate = group.catch_up_rate
        slower = rate is not None and (group.rate is None or rate < group.rate)
        return cls(own, Pace(database_url, group.name, rate, stopping) if slower else own)

    def limit(self, rate: float | None) -> None:
        """A rewind's rate; None once it has none any more."""
        if rate != self._limit:
            self._limit = rate
            self._own.limit(rate)
            self._catch_up.limit(rate)
            self.rate = self._lowest()

    def look(self, progress: Progress) -> None:
        """Told how far this process is: once no history is left in what it reads, its rate does not hold any more."""
        if self._catch_up is self._own or self._seen == progress.generation:
            return
        ends, before = self.history, progress.finished_before
        left = any(before(partition) < ends.get(partition, 0) for partition in progress.partitions())
        if not left:
            self._seen = progress.generation
        if left != self._history_left:
            self._history_left = left
            self.rate = self._lowest()

    def begin(self, records: Iterable[Record]) -> None:
        """This thread is to apply these next."""
        history, pace = self.history, self._own
        if pace is not self._catch_up and any(
            record.offset < history.get((record.topic, record.partition), 0) for record in records
        ):
            pace = self._catch_up
        self._mine.pace = pace

    def approach(self) -> None:
        """Wait until this thread's next slot is near: before a transaction is begun. Raises NotNow."""
        self._of_run().approach()

    def take_turns(self, count: int) -> None:
        """Wait until so many events may start. Raises NotNow."""
        self._of_run().take_turns(count)

    def give_back(self) -> None:
        """This thread starts nothing now: its slot is for others."""
        self._of_run().give_back()

    def close(self) -> None:
        """To be called once no worker takes a turn any more."""
        self._own.close()
        self._catch_up.close()

    def _lowest(self) -> float | None:
        paces = (self._own, self._catch_up) if self._history_left else (self._own,)
        return min((pace.rate for pace in paces if pace.rate is not None), default=None)

    def _of_run(self) -> Pace:
        pace: Pace = getattr(self._mine, "pace", self._own)
        return pace
