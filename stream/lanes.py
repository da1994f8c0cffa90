"""Which record may start now. One lane a key: a key's records run one after the other, keys side by side.

A lane is *ready* (it has records, nothing of it runs), *busy* (a run holds its first records) or *idle*, which is:
not there. Records that run have left their lane; those that must run again are given back to its front, so the
order of a key never changes. Records of the retry topic have lanes and runs of their own: what they wake is in the
database, and one of them wakes all that its key has there.

Pure: no threads, no clock, no Kafka. The caller is one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stream.events import Record
from stream.outcomes import Outcome

LaneKey = tuple[str, bytes | int]  # (topic, key), or (topic, partition) where the key is null

RECORD_OVERHEAD_BYTES = 1000  # what a Record costs beside its value: headers, objects


@dataclass(slots=True)
class Run:
    """Records that one worker applies together, each key's in order.

    `retry`: they are of the retry topic, one a key. `probe`: one record, tried to see whether trying helps again.
    `suspect`: one of them may have killed its process; each is tried alone.
    `woken`, filled by who applies it: what became of each event that retry records woke. `succeeded`, too: whether
    any handler did what it should.
    """

    records: list[Record]
    retry: bool = False
    probe: bool = False
    suspect: bool = False
    woken: list[Outcome] = field(default_factory=list)
    succeeded: bool = False


class _Lane:
    __slots__ = ("busy", "key", "waiting")

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.waiting: deque[Record] = deque()
        self.busy = False


class Lanes:
    """All lanes of one group in one process. `retry_topic`: whose records have runs of their own.

    Invariants: no two records of a lane run at the same time; a lane's records run in the order they were added;
    every record added is taken, given back or dropped.
    """

    def __init__(self, retry_topic: str | None = None) -> None:
        self._retry_topic = retry_topic
        self._lanes: dict[LaneKey, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        self._retries: deque[_Lane] = deque()  # ready, of the retry topic
        self.count = 0  # records added and neither settled nor dropped
        self.bytes = 0
        self.startable = 0  # records of ready lanes: what a worker could take now

    def add(self, records: Iterable[Record]) -> None:
        """Append each record to its key's lane."""
        lanes = self._lanes
        for record in records:
            key = record.key
            lane_key: LaneKey = (record.topic, record.partition if key is None else key)
            lane = lanes.get(lane_key)
            if lane is None:
                lane = lanes[lane_key] = _Lane(lane_key)
                self._queue(lane).append(lane)
                self.startable += 1
            elif not lane.busy:
                self.startable += 1
            lane.waiting.append(record)
            self.count += 1
            self.bytes += size_of(record)

    @property
    def retries(self) -> int:
        """How many keys of the retry topic are ready."""
        return len(self._retries)

    def take(self, limit: int) -> Run | None:
        """Up to `limit` records of ready lanes. The lanes of the run are busy until `settle`."""
        records: list[Record] = []
        while self._ready and len(records) < limit:
            lane = self._ready.popleft()
            waiting = lane.waiting
            self.startable -= len(waiting)
            lane.busy = True
            room = limit - len(records)
            if len(waiting) <= room:
                records.extend(waiting)
                waiting.clear()
            else:
                records.extend(waiting.popleft() for _ in range(room))
        return Run(records) if records else None

    def take_retries(self, limit: int) -> Run | None:
        """One record of each of up to `limit` ready lanes of the retry topic."""
        lanes = [self._retries.popleft() for _ in range(min(limit, len(self._retries)))]
        for lane in lanes:
            self.startable -= len(lane.waiting)
            lane.busy = True
        return Run([lane.waiting.popleft() for lane in lanes], retry=True) if lanes else None

    def settle(self, run: Run, back: Sequence[Record] = ()) -> None:
        """End a run. `back` are those of its records that are not finished, in their order: they run again."""
        for record in reversed(back):
            self._lanes[lane_of(record)].waiting.appendleft(record)
        self.count -= len(run.records) - len(back)
        self.bytes -= sum(map(size_of, run.records)) - sum(map(size_of, back))
        for key in dict.fromkeys(map(lane_of, run.records)):
            lane = self._lanes[key]
            lane.busy = False
            self._place(lane)

    def drop(self, topic: str, partition: int) -> None:
        """Forget what of this partition has not started. What runs is settled as ever."""
        for lane in list(self._lanes.values()):
            if lane.key[0] != topic or all(record.partition != partition for record in lane.waiting):
                continue
            keep = deque(record for record in lane.waiting if record.partition != partition)
            gone = len(lane.waiting) - len(keep)
            self.count -= gone
            self.bytes -= sum(size_of(record) for record in lane.waiting if record.partition == partition)
            if not lane.busy:
                self.startable -= len(lane.waiting)
                self._queue(lane).remove(lane)
            lane.waiting = keep
            self._place(lane)

    def _queue(self, lane: _Lane) -> deque[_Lane]:
        return self._retries if lane.key[0] == self._retry_topic else self._ready

    def _place(self, lane: _Lane) -> None:
        """Put a lane that does not run where `take` finds it, or forget an empty one."""
        if lane.busy:
            return
        if not lane.waiting:
            del self._lanes[lane.key]
            return
        self.startable += len(lane.waiting)
        self._queue(lane).append(lane)


def lane_of(record: Record) -> LaneKey:
    """The lane of a record: its key within its topic, or its partition where it has no key."""
    return (record.topic, record.partition if record.key is None else record.key)


def size_of(record: Record) -> int:
    """About how much memory a record holds, in bytes."""
    return (0 if record.value is None else len(record.value)) + RECORD_OVERHEAD_BYTES
