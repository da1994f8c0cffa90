"""Which record may start now. One lane a key: a key's records run one after the other, keys side by side.

A lane is *ready* (it has records, nothing of it runs), *busy* (a run holds its first records), *waiting* (for the time
of its first record's second try, or until another worker lets go of its key) or *idle*, which is: not there. Records
that run have left their lane; those that must run again are given back to its front, so the order of a key never
changes.
Records of the retry topic have lanes and runs of their own: what they wake is in the database, and one of them wakes
all that its key has there.

Pure: no threads, no clock, no Kafka. The caller is one thread; `count` and `waits` may be read by others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stream.events import Record
from stream.outcomes import FirstTry, Outcome

LaneKey = tuple[str, bytes | int]  # (topic, key), or (topic, partition) where the key is null

MOST_POSTPONED = 100  # lanes; what fails beyond them is parked at once
RECORD_OVERHEAD_BYTES = 1000  # what a Record costs beside its value: headers, objects


@dataclass(slots=True)
class Run:
    """Records that one worker applies together, each key's in order.

    `first`: of lanes whose first record here is tried for the second time, what the first try left.
    `retry`: they are of the retry topic, one a key. `probe`: one record, tried to see whether trying helps again.
    `suspect`: one of them may have killed its process; each is tried alone.
    Filled by who applies it: `woken`, what became of each event that retry records woke; `succeeded`, whether any
    handler did what it should; `probe_failed`, whether trying does not help yet; `redone`, whether work was undone and
    done again because of what failed among it.
    """

    records: list[Record]
    first: dict[LaneKey, FirstTry] = field(default_factory=dict)
    retry: bool = False
    probe: bool = False
    suspect: bool = False
    woken: list[tuple[str, Outcome]] = field(default_factory=list)  # each with its topic
    succeeded: bool = False
    probe_failed: bool = False
    redone: bool = False


class _Lane:
    __slots__ = ("busy", "first", "key", "records", "wait")

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.records: deque[Record] = deque()
        self.busy = False
        self.first: FirstTry | None = None  # of the first record
        self.wait = 0  # the number of the wait, 0 while it does not wait


class Lanes:
    """All lanes of one group in one process. `retry_topic`: whose records have runs of their own.

    Invariants: no two records of a lane run at the same time; a lane's records run in the order they were added;
    every record added is taken, given back or dropped.
    """

    def __init__(self, retry_topic: str | None = None) -> None:
        self._retry_topic = retry_topic
        self._lanes: dict[LaneKey, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        self._again: deque[_Lane] = deque()  # ready, for the first record's second try
        self._retries: deque[_Lane] = deque()  # ready, of the retry topic
        self._heap: list[tuple[float, int, _Lane]] = []
        self._last_wait = 0
        self.waits = 0  # lanes that wait
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
            elif not (lane.busy or lane.wait):
                self.startable += 1
            lane.records.append(record)
            self.count += 1
            self.bytes += size_of(record)

    def take(self, limit: int, *, again: bool = False) -> Run | None:
        """Up to `limit` records of ready lanes that have not failed; with `again`, first of all of those whose first
        record is tried again. Its lanes are busy until `settle`."""
        run = Run([])
        if again:
            self._draw(self._again, run, limit)
        self._draw(self._ready, run, limit)
        return run if run.records else None

    def take_again(self, limit: int) -> Run | None:
        """The same of lanes whose first record is tried again, and no others."""
        run = Run([])
        self._draw(self._again, run, limit)
        return run if run.records else None

    def _draw(self, lanes: deque[_Lane], run: Run, limit: int) -> None:
        records = run.records
        # Each lane its share: a failure holds back what stands behind it in the run.
        share = -(-limit // max(1, len(lanes))) + 1
        while lanes and len(records) < limit:
            lane = lanes.popleft()
            ahead = lane.records
            if lane.first is not None:
                run.first[lane.key] = lane.first
            self.startable -= len(ahead)
            lane.busy = True
            room = min(share, limit - len(records))
            if len(ahead) <= room:
                records.extend(ahead)
                ahead.clear()
            else:
                records.extend(ahead.popleft() for _ in range(room))

    def take_retries(self, limit: int) -> Run | None:
        """One record of each of up to `limit` ready lanes of the retry topic."""
        lanes = [self._retries.popleft() for _ in range(min(limit, len(self._retries)))]
        for lane in lanes:
            self.startable -= len(lane.records)
            lane.busy = True
        return Run([lane.records.popleft() for lane in lanes], retry=True) if lanes else None

    def settle(
        self,
        run: Run,
        back: Sequence[Record] = (),
        first: Mapping[LaneKey, FirstTry] | None = None,
        until: Mapping[LaneKey, float] | None = None,
    ) -> None:
        """End a run. `back` are those of its records that are not finished, in their order: they run again.

        `first` says of lanes that the first of these has failed now, and when it is tried again. `until`: of lanes
        that are to wait for another reason, when they may go on.
        """
        for record in reversed(back):
            self._lanes[lane_of(record)].records.appendleft(record)
        self.count -= len(run.records) - len(back)
        self.bytes -= sum(map(size_of, run.records)) - sum(map(size_of, back))
        heads = {lane_of(record): record for record in reversed(run.records)} if run.first else {}
        for key in dict.fromkeys(map(lane_of, run.records)):
            lane = self._lanes[key]
            lane.busy = False
            if first and key in first:
                lane.first = first[key]
                self._wait(lane, lane.first.again_at)
            elif key in run.first and not (lane.records and lane.records[0] is heads[key]):
                lane.first = None  # else its second try could not be made, and is still to be made
            if until and key in until and lane.records:
                self._wait(lane, until[key])
            self._place(lane)

    def release(self, now: float) -> None:
        """Make lanes ready whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            _, number, lane = heapq.heappop(self._heap)
            if lane.wait == number:  # else an older wait, of a record that was dropped since
                self._end_wait(lane)
                self._place(lane)

    def next_release(self) -> float | None:
        """When the next waiting lane may go on; None where none waits."""
        return self._heap[0][0] if self._heap else None

    def drop(self, topic: str, partition: int) -> None:
        """Forget what of this partition has not started. What runs is settled as ever."""
        for lane in list(self._lanes.values()):
            if lane.key[0] != topic or all(record.partition != partition for record in lane.records):
                continue
            head = lane.records[0]
            keep = deque(record for record in lane.records if record.partition != partition)
            gone = len(lane.records) - len(keep)
            self.count -= gone
            self.bytes -= sum(size_of(record) for record in lane.records if record.partition == partition)
            if not (lane.busy or lane.wait):
                self.startable -= len(lane.records)
                self._queue(lane).remove(lane)
            lane.records = keep
            if not lane.busy and head.partition == partition:
                lane.first = None
                self._end_wait(lane)
            self._place(lane)

    def _wait(self, lane: _Lane, until: float) -> None:
        self._last_wait += 1
        lane.wait = self._last_wait
        self.waits += 1
        heapq.heappush(self._heap, (until, self._last_wait, lane))

    def _end_wait(self, lane: _Lane) -> None:
        self.waits -= lane.wait > 0
        lane.wait = 0

    def _queue(self, lane: _Lane) -> deque[_Lane]:
        if lane.first is not None:
            return self._again
        return self._retries if lane.key[0] == self._retry_topic else self._ready

    def _place(self, lane: _Lane) -> None:
        """Put a lane that neither runs nor waits where a run is taken from, or forget an empty one."""
        if lane.busy or lane.wait:
            return
        if not lane.records:
            del self._lanes[lane.key]
            return
        self.startable += len(lane.records)
        self._queue(lane).append(lane)


def lane_of(record: Record) -> LaneKey:
    """The lane of a record: its key within its topic, or its partition where it has no key."""
    return (record.topic, record.partition if record.key is None else record.key)


def size_of(record: Record) -> int:
    """About how much memory a record holds, in bytes."""
    return (0 if record.value is None else len(record.value)) + RECORD_OVERHEAD_BYTES
