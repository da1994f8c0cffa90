"""Dispatch: what may start now. The one place that hands runs to workers."""

from __future__ import annotations

import time
from collections.abc import Callable

from stream.config import RetrySettings
from stream.control import Control
from stream.groups import ConsumerGroup
from stream.lanes import Lanes, Run
from stream.pace import Paces
from stream.policy import ramp
from stream.suspects import TOGETHER, Suspects
from stream.workers import Flight, Workers

MOSTLY_WAITS = 0.75  # a worker that waits for more of its time than this leaves the interpreter to another
STUCK_S = 0.5  # a run under way for longer waits for something


class RunSize:
    """How many records a run may have: fewer after each that had to be done again because of what failed in it, more
    again after each full one that had not. Where one event in a hundred fails late, runs settle at about 60.

    `waited`: the share of its time for which the last full run did not compute; a small one says nothing, as it waits
    for its commit.
    """

    LEAST = 16

    def __init__(self, most: int) -> None:
        self.most = most
        self.now = most
        self.waited = 0.0

    def landed(self, records: int, *, redone: bool, waited: float) -> None:
        full = records >= self.now
        if full:
            self.waited = waited
        if redone:
            self.now = max(min(self.LEAST, self.most), self.now // 2)
        elif full:
            self.now = min(self.most, 2 * self.now)


class Dispatch:
    """Starts runs of one group, for as long as workers are idle. Owned by the processor's thread.

    While something holds the group (policy.winner) nothing starts but, now and then, one event to see whether it
    still has to be held. The record of a probe that fails comes back to the end of the line: the next is another key's.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        lanes: Lanes,
        workers: Workers,
        control: Control,
        suspects: Suspects,
        settings: RetrySettings,
        pace: Paces,
    ) -> None:
        self._group = group
        self._lanes = lanes
        self._workers = workers
        self._control = control
        self._suspects = suspects
        self._settings = settings
        self._pace = pace
        self._size = RunSize(group.batch)
        self._batches = group.batch > 1
        self._takes = (lanes.take_retries, lanes.take_again, lanes.take)
        self._turn = 0
        self._ramp_from: float | None = None
        self._ramp_started = 0

    def start_runs(self, generation: int) -> None:
        """Hand runs to idle workers, of this generation of assignments."""
        self._lanes.release(time.monotonic())
        if not self._workers.idle:
            return
        if self._control.hold is not None:
            self._probe(generation)
            return
        if self._suspects:
            self._start_suspects(generation)
            return
        while self._workers.idle:
            run = self._next_run()
            if run is None:
                return
            self._workers.start(Flight(run, generation))

    def landed(self, run: Run, waited: float) -> None:
        """Told of each run's end, and for which share of its time its worker waited."""
        if not (run.retry or run.probe or run.suspect):
            self._size.landed(len(run.records), redone=run.redone, waited=waited)

    def _next_run(self) -> Run | None:
        """A run of what failed before, as long as such do not take all the workers; else of fresh records. With `batch`
        above 1, second tries from memory go into the run of fresh ones.

        With `batch` above 1 a run takes what is ready, however little, as long as no other is under way. A second
        worker is worth it for a full run, where full runs wait for the database, the last one or this one; where they
        compute, and for a third, they would wait for each other's interpreter, and both be slower.
        """
        limit = self._size.now
        if self._pace.rate is not None:  # no transaction waits for more than a second's turns
            limit = min(limit, max(1, int(self._pace.rate)))
        if self._control.recovered_at is not None:
            limit = self._after_outage(limit, self._control.recovered_at)
            if limit == 0:
                return None
        run = None
        if 2 * self._again() < self._workers.count:
            run = self._take_failed(limit)
        if run is None and (not self._batches or self._may_start_another(limit)):
            run = self._lanes.take(limit, again=self._batches)
        if run is not None and self._ramp_from is not None:
            self._ramp_started += len(run.records)
        return run

    def _again(self) -> int:
        return sum(self._tries_again(flight.run) for flight in self._workers.flights)

    def _tries_again(self, run: Run) -> bool:
        return run.retry or (not self._batches and bool(run.first))

    def _take_failed(self, limit: int) -> Run | None:
        if self._batches:
            return self._lanes.take_retries(limit)
        return self._by_turns(limit, self._lanes.take_retries, self._lanes.take_again)

    def _may_start_another(self, limit: int) -> bool:
        fresh = [flight for flight in self._workers.flights if not self._tries_again(flight.run)]
        if not fresh:
            return True
        if len(fresh) > 1 or self._lanes.startable < limit:
            return False
        return self._size.waited >= MOSTLY_WAITS or time.monotonic() - fresh[0].begun > STUCK_S

    def _after_outage(self, limit: int, recovered: float) -> int:
        """How large a run may be: what comes back from an outage is not greeted with all that waited for it."""
        if recovered != self._ramp_from:
            self._ramp_from, self._ramp_started = recovered, 0
        most = ramp(time.monotonic() - recovered, self._group.concurrency, self._settings)
        if most is None:
            self._ramp_from = self._control.recovered_at = None
            return limit
        return max(0, min(limit, most - self._ramp_started))

    def _probe(self, generation: int) -> None:
        """One event, alone."""
        if self._workers.flights or not self._lanes.startable or self._control.hold == "paused":
            return
        if not self._control.take_probe():
            return
        run = self._by_turns(1, *self._takes)
        if run is not None:
            run.probe = True
            self._workers.start(Flight(run, generation))

    def _start_suspects(self, generation: int) -> None:
        """Nothing beside them, so that it is known who killed the process."""
        if self._workers.flights:
            return
        run = self._by_turns(TOGETHER, *self._takes)
        if run is None:
            if not self._lanes.waits:  # a key that another worker holds is still to come
                self._suspects.give_up_waiting(time.monotonic())
        else:
            run.suspect = True
            self._workers.start(Flight(run, generation))

    def _by_turns(self, limit: int, *takes: Callable[[int], Run | None]) -> Run | None:
        """A run from the next of these that has one: none of them waits for another for ever."""
        for _ in takes:
            self._turn = (self._turn + 1) % len(takes)
            run = takes[self._turn](limit)
            if run is not None:
                return run
        return None
