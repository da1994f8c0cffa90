"""Processor: THE loop of a group. This file is the heart of consuming.

One thread owns the Kafka client; workers apply runs of records (execution.py) and never touch it. A record's way:

    fetch ─> lanes ─> dispatch ─> worker: claim, decode, handle, commit ─> collect ─> offset tracker ─> offset commit

What holds, whatever happens between two lines of it:
  * an offset is committed only when it and all before it are finished, and their effects are committed before;
  * records of a key run one after the other: a lane is busy from `take` until its run has landed, also across a
    rebalance, when what it did no longer counts;
  * what is read twice is applied once, by the ledger: so losing an offset commit costs time, never correctness.
"""

from __future__ import annotations

import math
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import structlog

from stream import failures
from stream.assignment import Assignment, Stopping
from stream.config import Config
from stream.ends import Ends
from stream.execution import Execution
from stream.failpoints import failpoint
from stream.groups import ConsumerGroup
from stream.groupstate import GroupState
from stream.kafka.consumer import GroupConsumer
from stream.keys import shown_key
from stream.lanes import Lanes
from stream.offsets import Partition, Progress
from stream.policy import retry_delay
from stream.project import Project
from stream.workers import Flight, Landing, Workers

log = structlog.get_logger("stream.processor")

IDLE_S = 0.5  # how long an idle group waits for a record; one that comes wakes it at once
BUSY_S = (
    0.005  # how long it waits for a record while runs are under way, and for a run while records are waiting
)
COMMIT_EVERY_S = 0.5
COMMIT_PATIENCE_S = 10.0  # an unanswered commit holds back the next one for so long
POLL_EVERY_S = 1.0  # a full group still lets the client speak: rebalances are served in its calls
MOST_RECORDS, MOST_BYTES = 10_000, 16 * 2**20  # in memory, whatever waits for what
REVOKE_S = 20.0
SAY_FULL_EVERY_S = 60.0
STOP_S = 25.0
WAITING = 0.75  # a worker that waits for more of its time than this leaves the interpreter to another
STUCK_S = 0.5  # a run under way for longer waits for something
MEMORY_S = 1.0  # out of memory: waiting does not make it better
LOOK_EVERY_S = 0.3


class Processor:
    """Runs one group until it is stopped, or until its end (`exit_at_end`).

    `run` and all else but `stop` belong to one thread. Raises what ends the group: Refused (a start that needs a
    person), StopGroup, MemoryError, StreamError, PartlyDone (at the end, with keys that still fail).
    """

    def __init__(
        self, group: ConsumerGroup, project: Project, config: Config, *, exit_at_end: bool = False
    ) -> None:
        self.group = group
        self.counts: Counter[str] = Counter()  # records by outcome
        self._stopping = threading.Event()
        self._deadline = math.inf
        self._failure: BaseException | None = None  # of a worker: ends the group
        self._exit_at_end = exit_at_end
        worker = f"{socket.gethostname()}-{os.getpid()}-{group.name}"
        self._state = GroupState(config.database_url, group.name, worker)
        self._consumer = GroupConsumer(config, group.name, prefetch=2 * group.batch, ends=exit_at_end)
        self._assignment = Assignment(group, config, self._consumer, self._state, self._stopping)
        self._workers = Workers(
            _worker_count(group),
            worker,
            lambda name: Execution(group, project, config.database_url, worker=name, stopping=self._stopping),
        )
        self._lanes = Lanes()
        self._progress = Progress()
        self._leaving: set[Partition] = set()  # being revoked: nothing of them starts any more
        # Records ready to start that keep the workers busy while more are fetched.
        self._enough = max(2 * group.batch, 8 * group.concurrency, 64)
        self._paused = False
        self._said_full_at = -SAY_FULL_EVERY_S
        self._polled_at = 0.0
        self._commit_at = 0.0
        self._commit_again_at = 0.0
        self._look_at = 0.0
        self._ends: Ends | None = None

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Join, and go round until told to stop or the end is reached; then finish what is under way, and leave."""
        try:
            ends = self._assignment.prepare()
            self._ends = Ends(self.group.name, ends) if self._exit_at_end else None
            self._consumer.subscribe(self.group.topics, self)
            while not self._stopping.is_set() and self._failure is None and not self._at_end():
                self.run_once()
        except Stopping:
            pass
        finally:
            self._leave()
        if self._failure is not None:
            raise self._failure

    def run_once(self) -> None:
        """One pass. What workers finished comes first: it frees the lanes and the room for all that follows."""
        self._collect(0)
        self._commit_if_due()
        self._dispatch()
        if self._has_room():
            self._fetch()
            self._dispatch()
        else:
            self._wait_for_room()

    def stop(self, seconds: float = STOP_S) -> None:
        """Ask it to stop, from any thread: what has started is finished, within `seconds` from now in all."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)
        self._stopping.set()

    # -- its steps ----------------------------------------------------------------------------------------------

    def _collect(self, timeout: float) -> None:
        """Take in what workers have finished; waits up to `timeout` for the first."""
        for landing in self._workers.landings(timeout):
            if landing.error is None:
                self._settle(landing)
            else:  # its lanes stay busy: nothing behind it may run
                self._failure = self._failure or landing.error

    def _settle(self, landing: Landing) -> None:
        """Finished records let the offset pass; a failed one waits in front of its lane, and others go on."""
        flight, run = landing.flight, landing.flight.run
        back, hold = [], []
        for record, outcome in zip(run.records, landing.outcomes, strict=True):
            self.counts[outcome.kind] += 1
            partition = (record.topic, record.partition)
            if not self._progress.waits_for(partition, flight.generation):
                continue
            if outcome.finished:
                self._progress.finished(partition, record.offset)
            elif partition not in self._leaving:
                back.append(record)
                if outcome.kind == "failed":
                    delay = retry_delay(run.attempt, outcome.error, random.random())
                    failures.report(self.group.name, record, outcome, attempt=run.attempt, again_in=delay)
                    hold.append((record, time.monotonic() + delay))
        self._lanes.settle(run, back, hold)

    def _commit_if_due(self) -> None:
        """Send offsets from time to time, one message at a time: a broker that hangs holds up nothing else."""
        now = time.monotonic()
        if now < self._commit_at or (self._consumer.commits_under_way and now < self._commit_again_at):
            return
        self._commit_at, self._commit_again_at = now + COMMIT_EVERY_S, now + COMMIT_PATIENCE_S
        offsets = self._progress.committable()
        if offsets:
            failpoint("consume.before_offset_commit")
            self._consumer.commit(offsets)

    def _dispatch(self) -> None:
        """Hand runs to idle workers.

        With `batch` above 1 a run takes what is ready, however little, as long as no other is under way. A second
        worker is worth it for a full run, where runs wait for the database, the last one or this one; where they
        compute, and for a third, they would wait for each other's interpreter, and both be slower.
        Second tries never take all the workers, or slow failing keys would hold the others.
        """
        while self._workers.idle and self._failure is None:
            fresh = [flight for flight in self._workers.flights if flight.run.attempt == 1]
            again = len(self._workers.flights) - len(fresh)
            limit = self.group.batch
            if limit > 1 and fresh and not self._worth_a_second(fresh):
                limit = 0
            run = self._lanes.take(limit, time.monotonic(), again=2 * again < self._workers.count)
            if run is None:
                return
            self._workers.start(Flight(run, self._progress.generation))

    def _worth_a_second(self, fresh: list[Flight]) -> bool:
        if len(fresh) > 1 or self._lanes.startable < self.group.batch:
            return False
        return self._workers.waited >= WAITING or time.monotonic() - fresh[0].begun > STUCK_S

    def _has_room(self) -> bool:
        """Whether to fetch. What waits behind busy and failing keys counts for memory only: others must go on."""
        lanes = self._lanes
        return lanes.startable < self._enough // 2 and lanes.count < MOST_RECORDS and lanes.bytes < MOST_BYTES

    def _fetch(self) -> None:
        """Records from the broker into their lanes."""
        if self._paused:
            self._consumer.resume()
            self._paused = False
        limit = min(self._enough - self._lanes.startable, MOST_RECORDS - self._lanes.count)
        waiting = self._lanes.startable > 0
        if not self._receive(limit, 0 if waiting else self._patience()) and waiting:
            self._collect(BUSY_S)

    def _patience(self) -> float:
        if self._workers.flights:
            return BUSY_S
        release = self._lanes.next_release()
        return IDLE_S if release is None else min(IDLE_S, max(0.0, release - time.monotonic()))

    def _receive(self, limit: int, timeout: float) -> int:
        """Fetch, and put what is ours and new into the lanes; returns how much that was."""
        fetched = self._consumer.fetch(limit, timeout)
        self._polled_at = time.monotonic()
        received = self._progress.received
        new = [r for r in fetched.records if received((r.topic, r.partition), r.offset)]
        self._lanes.add(new)
        for partition, end in fetched.ends:
            self._progress.passed(partition, end)
        homeless = self._progress.partitions().intersection(fetched.homeless) if fetched.homeless else None
        if homeless:
            self._restart(sorted(homeless))
        return len(new)

    def _wait_for_room(self) -> None:
        """Enough is waiting: wait for workers. The client is spoken to now and then, without being given records."""
        if time.monotonic() - self._polled_at > POLL_EVERY_S:
            if not self._paused:
                self._consumer.pause()
                self._paused = True
            self._receive(1, 0)
        if self._workers.flights:
            self._collect(POLL_EVERY_S)
        else:
            self._say_full()
            self._stopping.wait(min(POLL_EVERY_S, self._patience()))

    def _say_full(self) -> None:
        """All that is in memory waits behind keys that fail: the group is silent, and says why."""
        now = time.monotonic()
        if now - self._said_full_at > SAY_FULL_EVERY_S and (held := next(self._lanes.held(), None)):
            self._said_full_at = now
            log.warning(
                "group.full",
                group=self.group.name,
                records=self._lanes.count,
                waiting_behind=shown_key(held.key),
                position=held.position,
            )

    # -- partitions come and go (called inside the client's calls) --------------------------------------------------

    def assigned(self, partitions: list[Partition]) -> None:
        """Start on them; a tracker each, of a new generation."""
        if self._stopping.is_set():
            return
        starts = self._assignment.open(partitions)
        if self._paused:
            self._consumer.pause()  # what has just come, too
        self._progress.start(starts)
        if partitions:
            log.info("partitions.assigned", group=self.group.name, partitions=_names(partitions))

    def revoked(self, partitions: list[Partition]) -> None:
        """Drop what has not started, wait for what has, commit: the next owner starts right behind it."""
        failpoint("consume.revoke")
        self._leaving.update(partitions)
        for topic, number in partitions:
            self._lanes.drop(topic, number)
        self._await_landings(self._flights_of(partitions), min(time.monotonic() + REVOKE_S, self._deadline))
        self._commit_now(self._progress.committable(partitions))
        self._forget(partitions)
        self._quietly("release", lambda: self._state.released(partitions))
        if partitions:
            log.info("partitions.revoked", group=self.group.name, partitions=_names(partitions))

    def lost(self, partitions: list[Partition]) -> None:
        """They are another member's already: nothing is committed, nothing waited for."""
        for topic, number in partitions:
            self._lanes.drop(topic, number)
        self._forget(partitions)
        log.warning("partitions.lost", group=self.group.name, partitions=_names(partitions))

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """The broker has these offsets."""
        self._progress.committed(offsets)
        failpoint("consume.after_offset_commit")

    def _restart(self, partitions: list[Partition]) -> None:
        """Their position is not in the log any more: decide again where to go on."""
        self.lost(partitions)
        self._consumer.stop(partitions)
        self.assigned(partitions)

    def _forget(self, partitions: Iterable[Partition]) -> None:
        for flight in self._flights_of(partitions):
            flight.abandoned = True  # it may finish; it is not waited for, nor tried again
        self._progress.forget(partitions)
        self._leaving.difference_update(partitions)

    def _flights_of(self, partitions: Iterable[Partition]) -> set[Flight]:
        wanted = set(partitions)
        return {
            flight
            for flight in self._workers.flights
            if any((record.topic, record.partition) in wanted for record in flight.run.records)
        }

    # -- the end --------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Finish what has started, commit, leave the group: in this order, within one deadline."""
        self.stop(MEMORY_S if isinstance(self._failure, MemoryError) else STOP_S)
        self._quietly("drain", lambda: self._await_landings(set(self._workers.flights), self._deadline))
        self._quietly("commit", lambda: self._commit_now(self._progress.committable()))
        self._quietly("close", self._consumer.close)
        self._workers.close(self._deadline)

    def _await_landings(self, flights: set[Flight], deadline: float) -> None:
        """Collect until these have landed; others that land make room for new runs meanwhile."""
        while flights & self._workers.flights:
            left = deadline - time.monotonic()
            if left <= 0:
                log.warning(
                    "runs.left_behind", group=self.group.name, runs=len(flights & self._workers.flights)
                )
                return
            self._collect(left)
            if not self._stopping.is_set():
                self._dispatch()

    def _commit_now(self, offsets: Mapping[Partition, int]) -> None:
        if offsets:
            failpoint("consume.before_offset_commit")
            self._consumer.commit_now(offsets)

    def _quietly(self, what: str, act: Callable[[], object]) -> None:
        """On the way out nothing may keep the rest from being done, nor hide why we leave."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  # logged; all of it is made up for by the next start
            log.warning("group.leaving", group=self.group.name, step=what, error=str(error))

    def _at_end(self) -> bool:
        """With `exit_at_end`: whether the end is reached; looked at now and then, while nothing is under way."""
        now = time.monotonic()
        if self._ends is None or self._workers.flights or now < self._look_at:
            return False
        self._look_at = now + LOOK_EVERY_S
        if not self._ends.read(self._progress):
            return False
        self._commit_now(self._progress.committable())
        return self._ends.reached(self._consumer, self._progress, self._lanes)


def _worker_count(group: ConsumerGroup) -> int:
    """With `batch`: two for runs, two for second tries beside them."""
    return group.concurrency if group.batch == 1 else min(group.concurrency, 4)


def _names(partitions: Iterable[Partition]) -> list[str]:
    return [f"{topic}[{number}]" for topic, number in sorted(partitions)]
