"""Which record may start now. One lane a key: a key's records run one after the other, keys side by side.

A lane is *ready* (it has records, nothing of it runs), *busy* (a run holds its first records), *held* (its first
record failed and waits for its time) or *idle*, which is: not there. Records that run have left their lane; those
that must run again are given back to its front, so the order of a key never changes.

Pure: no threads, no clock, no Kafka. The caller passes the time and is one thread.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stream.events import Record

LaneKey = tuple[str, bytes | int]  # (topic, key), or (topic, partition) where the key is null

RECORD_OVERHEAD_BYTES = 1000  # what a Record costs beside its value: headers, objects


@dataclass(slots=True)
class Run:
    """Records that one worker applies together, each key's in order. A second try is always a run of one."""

    records: list[Record]
    attempt: int = 1


class _Lane:
    __slots__ = ("busy", "failures", "held", "key", "waiting")

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.waiting: deque[Record] = deque()
        self.busy = False
        self.held = 0  # the number of the hold it waits for, 0 when it waits for none
        self.failures = 0  # of the first record


class Lanes:
    """All lanes of one group in one process.

    Invariants: no two records of a lane run at the same time; a lane's records run in the order they were added;
    every record added is taken, given back or dropped.
    """

    def __init__(self) -> None:
        self._lanes: dict[LaneKey, _Lane] = {}
        self._ready: deque[_Lane] = deque()  # next record never tried
        self._again: deque[_Lane] = deque()  # next record has failed before, its time has come
        self._held: list[tuple[float, int, _Lane]] = []
        self._holds = 0
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
                self._ready.append(lane)
                self.startable += 1
            elif not (lane.busy or lane.held):
                self.startable += 1
            lane.waiting.append(record)
            self.count += 1
            self.bytes += size_of(record)

    def take(self, limit: int, now: float, *, again: bool = True) -> Run | None:
        """The next run: a record whose time to be tried again has come, alone; else up to `limit` of ready lanes.

        With `again` false no second try is made. The lanes of the run are busy until `settle`.
        """
        self.release(now)
        if again and self._again:
            lane = self._again.popleft()
            self.startable -= len(lane.waiting)
            lane.busy = True
            return Run([lane.waiting.popleft()], lane.failures + 1)
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

    def settle(
        self, run: Run, back: Sequence[Record] = (), hold: Iterable[tuple[Record, float]] = ()
    ) -> None:
        """End a run. `back` are those of its records that are not finished, in their order: they run again.

        `hold` names those of them that failed, each the first of its lane, with the time before which the lane
        does not go on.
        """
        for record in reversed(back):
            self._lanes[lane_of(record)].waiting.appendleft(record)
        self.count -= len(run.records) - len(back)
        self.bytes -= sum(map(size_of, run.records)) - sum(map(size_of, back))
        until = {lane_of(record): time for record, time in hold}
        for key in {lane_of(record) for record in run.records}:
            lane = self._lanes[key]
            lane.busy = False
            if key in until:
                self._hold(lane, until[key])
            elif run.attempt == 1 or not back:  # else: a second try that could not be made keeps its count
                lane.failures = 0
            self._place(lane)

    def release(self, now: float) -> None:
        """Make held lanes ready whose time has come."""
        while self._held and self._held[0][0] <= now:
            _, number, lane = heapq.heappop(self._held)
            if lane.held == number:  # else an older hold, of a record that was dropped since
                lane.held = 0
                self._place(lane)

    def drop(self, topic: str, partition: int) -> None:
        """Forget what of this partition has not started. What runs is settled as ever."""
        for lane in list(self._lanes.values()):
            if lane.key[0] != topic or all(record.partition != partition for record in lane.waiting):
                continue
            first = lane.waiting[0]
            keep = deque(record for record in lane.waiting if record.partition != partition)
            gone = len(lane.waiting) - len(keep)
            self.count -= gone
            self.bytes -= sum(size_of(record) for record in lane.waiting if record.partition == partition)
            if not (lane.busy or lane.held):
                self.startable -= len(lane.waiting)
                (self._again if lane.failures else self._ready).remove(lane)
            lane.waiting = keep
            if not lane.busy and first.partition == partition:
                lane.failures, lane.held = 0, 0
            self._place(lane)

    def next_release(self) -> float | None:
        """When the next held lane may go on; None where none is held."""
        return self._held[0][0] if self._held else None

    def held(self) -> Iterator[Record]:
        """The failed record of each lane that waits for another try."""
        return (lane.waiting[0] for lane in self._lanes.values() if lane.failures and not lane.busy)

    def _hold(self, lane: _Lane, until: float) -> None:
        lane.failures += 1
        self._holds += 1
        lane.held = self._holds
        heapq.heappush(self._held, (until, self._holds, lane))

    def _place(self, lane: _Lane) -> None:
        """Put a lane that neither runs nor waits for its time where `take` finds it, or forget an empty one."""
        if lane.busy or lane.held:
            return
        if not lane.waiting:
            del self._lanes[lane.key]
            return
        self.startable += len(lane.waiting)
        (self._again if lane.failures else self._ready).append(lane)


def lane_of(record: Record) -> LaneKey:
    """The lane of a record: its key within its topic, or its partition where it has no key."""
    return (record.topic, record.partition if record.key is None else record.key)


def size_of(record: Record) -> int:
    """About how much memory a record holds, in bytes."""
    return (0 if record.value is None else len(record.value)) + RECORD_OVERHEAD_BYTES
