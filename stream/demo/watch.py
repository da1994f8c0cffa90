"""Watch: what the demo sees of its own run, in the topics and in the database, from outside the groups."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stream import database
from stream.config import Config
from stream.errors import Unreachable
from stream.events import Record
from stream.groups import ConsumerGroup
from stream.kafka.reader import Reader, committed

PERIOD_S = 0.5
PATIENCE_S = 30.0  # with a broker too busy to say what a group has committed

LOOK = """
select count(*), coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float,
       (select count(*) from stream.scheduled), (select count(*) from shop.customer_order)
  from stream.outbox
"""


@dataclass(frozen=True)
class GroupSeen:
    """One group: events applied, records it has not committed yet, and the age of the oldest of them."""

    applied: int
    lag: int
    oldest_s: float


@dataclass(frozen=True)
class Seen:
    """One look. `waiting`: rows in the outbox, and the age of the oldest; `later`: rows that wait for their time."""

    orders: int = 0
    relayed: int = 0
    waiting: int = 0
    oldest_s: float = 0.0
    later: int = 0
    groups: Mapping[str, GroupSeen] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        return not (self.waiting or self.later or any(group.lag for group in self.groups.values()))

    @property
    def progress(self) -> tuple[int, ...]:
        """Grows as long as anything moves."""
        return self.orders, self.relayed, *(group.applied for group in self.groups.values())


class Watch:
    """Looks twice a second, on a thread of its own. `records` are all records of all topics, so far."""

    def __init__(self, config: Config, groups: Sequence[ConsumerGroup], topics: Sequence[str]) -> None:
        self.seen = Seen()
        self.looks = 0
        self.idle = 0  # looks in a row that saw nothing to do: one alone may have missed a record under way
        self._failure: Exception | None = None
        self._config = config
        self._groups = groups
        self._topics = topics
        self._stopping = threading.Event()
        self._records: defaultdict[tuple[str, int], list[Record]] = defaultdict(list)
        self._known: dict[str, Mapping[tuple[str, int], int]] = {}
        self._answered = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    @property
    def records(self) -> dict[tuple[str, int], list[Record]]:
        """(topic, partition) -> its records in order. To be read once stopped."""
        return dict(self._records)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the watch."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            reader = Reader(self._config, self._topics)
            try:
                self._look_on(reader)
            finally:
                reader.close()
        except Exception as error:  # noqa: BLE001  # the demo's own thread raises it
            self._failure = error

    def _look_on(self, reader: Reader) -> None:
        with database.connect(
            self._config.database_url, application_name="stream-demo-watch", autocommit=True
        ) as connection:
            while not self._stopping.is_set():
                until = time.monotonic() + PERIOD_S
                while (left := until - time.monotonic()) > 0:
                    for record in reader.read(left):
                        self._records[record.topic, record.partition].append(record)
                ledger = "select consumer_group, count(*) from stream.ledger group by 1"
                applied: dict[str, int] = dict(connection.execute(ledger).fetchall())
                [(waiting, oldest_s, later, orders)] = connection.execute(LOOK)
                seen = Seen(
                    orders=orders,
                    relayed=sum(map(len, self._records.values())),
                    waiting=waiting,
                    oldest_s=oldest_s,
                    later=later,
                    groups={
                        group.name: self._group(group, applied.get(group.name, 0), self._offsets(group.name))
                        for group in self._groups
                    },
                )
                self.idle = self.idle + 1 if seen.idle and seen.progress == self.seen.progress else 0
                self.seen = seen
                self.looks += 1

    def _offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        """The group's; for a while the last known, where the broker is too busy to say."""
        try:
            self._known[group] = committed(self._config, group)
            self._answered = time.monotonic()
        except Unreachable:
            if time.monotonic() - self._answered > PATIENCE_S:
                raise
        return self._known.get(group, {})

    def _group(self, group: ConsumerGroup, applied: int, offsets: Mapping[tuple[str, int], int]) -> GroupSeen:
        lag, oldest = 0, None
        for (topic, partition), records in self._records.items():
            if topic not in group.topics:
                continue
            behind = records[offsets.get((topic, partition), 0) :]  # the first offset is 0: the topic is new
            lag += len(behind)
            if behind and (oldest is None or behind[0].timestamp < oldest):
                oldest = behind[0].timestamp
        age = 0.0 if oldest is None else max(time.time() - oldest / 1000, 0.0)
        return GroupSeen(applied, lag, age)
