"""Processor: THE loop of a group. This file is the heart of consuming.

One thread owns the Kafka client; workers apply runs of records (execution.py) and never touch it. A record's way:

    fetch ─> lanes ─> dispatch ─> worker: claim, decode, handle, commit ─> collect ─> offset tracker ─> offset commit
              │                     └─ what fails again is parked in the same commit; the retry topic brings it back
              └─ what fails once waits here for its second try

What holds, whatever happens between two lines of it:
  * an offset is committed only when it and all before it are finished, and their effects are committed before;
  * records of a key run one after the other: a lane is busy from `take` until its run has landed, also across a
    rebalance, when what it did no longer counts;
  * what is read twice is applied once, by the ledger: so losing an offset commit costs time, never correctness.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

import structlog

from stream.assignment import Assignment, Stopping
from stream.config import Config
from stream.control import Control
from stream.dispatch import Dispatch
from stream.ends import MOST_NAMED, Ends
from stream.epochs import Epochs
from stream.execution import Execution
from stream.failing import Failing
from stream.failpoints import failpoint
from stream.groups import ConsumerGroup
from stream.groupstate import GroupState
from stream.health import Health
from stream.kafka.consumer import GroupConsumer
from stream.kafka.reader import committed
from stream.lanes import MOST_POSTPONED, Lanes, lane_of
from stream.lookout import Lookout
from stream.meters import GroupMeter
from stream.offsets import Partition, Progress
from stream.outcomes import BUSY
from stream.pace import Paces
from stream.project import Project
from stream.rebalance import Rebalance, names
from stream.recess import Recess
from stream.suspects import Suspects
from stream.topics import retry_topic
from stream.vitals import GroupSigns
from stream.watchdog import Watchdog
from stream.workers import Flight, Landing, Workers

log = structlog.get_logger("stream.processor")

IDLE_S = 0.5  # how long an idle group waits for a record; one that comes wakes it at once
# How long it waits for a record while runs are under way, and for a run while records are waiting.
BUSY_S = 0.005
HELD_S = 0.05  # how long it waits between two looks at what keeps waiting records from being started
TAKEN_S = 0.1  # how long a key waits that another worker holds
COMMIT_EVERY_S = 0.5
COMMIT_PATIENCE_S = 10.0  # an unanswered commit holds back the next one for so long
POLL_EVERY_S = 1.0  # a full group still lets the client speak: rebalances are served in its calls
MOST_RECORDS, MOST_BYTES = 10_000, 16 * 2**20  # in memory, whatever waits for what
REVOKE_S = 20.0
STOP_S = 25.0
MEMORY_S = 1.0  # out of memory: waiting does not make it better
LOOK_EVERY_S = 0.3
SHOW_EVERY_S = 0.2


class Processor:
    """Runs one group until it is stopped, or until its end (`exit_at_end`).

    `run` and all else but `stop` and `signs` belong to one thread. Raises what ends the group: Refused (a start that
    needs a person), StopGroup, MemoryError, StreamError, PartlyDone (at the end, with keys that still fail).
    """

    def __init__(
        self, group: ConsumerGroup, project: Project, config: Config, *, exit_at_end: bool = False
    ) -> None:
        self.group = group
        self.meter = GroupMeter(group.name, group.topics, group.handlers)
        self._stopping = threading.Event()
        self._deadline = math.inf
        self._failure: BaseException | None = None  # of a worker: ends the group
        self._exit_at_end = exit_at_end
        worker = f"{socket.gethostname()}-{os.getpid()}-{group.name}"
        self._state = GroupState(config.database_url, group.name, worker)
        self._consumer = GroupConsumer(config, group.name, worker, prefetch=2 * group.batch, ends=exit_at_end)
        epochs = Epochs()
        self._assignment = Assignment(group, config, self._consumer, self._state, self._stopping, epochs)
        health = Health(config.retries)
        self._watchdog = Watchdog(group.name, group.timeout)
        self._pace = Paces.of(group, config.database_url, self._stopping)
        self._workers = Workers(
            _worker_count(group),
            worker,
            lambda name: Execution(
                group,
                project,
                config.database_url,
                worker=name,
                stopping=self._stopping,
                failing=Failing.of(group, name, health, config.retries, self._may_postpone, self.meter),
                desk=self._watchdog.desk(self.meter.durations()),
                pace=self._pace,
                epochs=epochs,
            ),
        )
        self._control = Control(
            config.database_url,
            group.name,
            worker,
            health,
            config.retries,
            progress=self._watchdog.progress,
            committed=lambda: self._progress.known(),
        )
        self._lookout = Lookout(config, group, worker, self._watchdog)
        self._lanes = Lanes(retry_topic(group.name))
        self._suspects = Suspects(group)
        self._dispatch = Dispatch(
            group, self._lanes, self._workers, self._control, self._suspects, config.retries, self._pace
        )
        self._progress = Progress()
        self._rebalance = Rebalance(
            group.name,
            self._stopping,
            self._assignment,
            self._consumer,
            self._state,
            self._workers,
            self._lanes,
            self._progress,
            self._suspects,
            self.meter,
            paused=lambda: self._paused,
            await_landings=lambda flights: self._await_landings(
                flights, min(time.monotonic() + REVOKE_S, self._deadline)
            ),
        )
        self._recess = Recess(
            group,
            self._control,
            self._consumer,
            self._state,
            self._rebalance,
            self._assignment.patiently,
            lambda: committed(config, group.name),
        )
        # Records ready to start that keep the workers busy while more are fetched.
        self._enough = max(2 * group.batch, 8 * group.concurrency, 64)
        self._paused = False
        self._polled_at = 0.0
        self._commit_at = 0.0
        self._commit_again_at = 0.0
        self._look_at = 0.0
        self._ends: Ends | None = None
        self._round_at = time.monotonic()
        self._show_at = 0.0
        self._offsets: Mapping[Partition, int] = {}

    @property
    def counts(self) -> Counter[str]:
        """Events by the kind of their outcome."""
        return self.meter.outcomes()

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Join, and go round until told to stop or the end is reached; then finish what is under way, and leave."""
        try:
            ends = self._assignment.prepare()
            self._ends = Ends(self.group.name, ends) if self._exit_at_end else None
            self._pace.history = self._assignment.history
            self._assignment.patiently(self._control.start)
            self._watchdog.start()
            self._lookout.start()
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
        self._show()
        self._collect(0)
        self._commit_if_due()
        if self._recess.called:
            self._make_way()
            return
        self._recess.join()
        self._start_runs()
        if self._has_room():
            self._fetch()
            self._start_runs()
        else:
            self._wait_for_room()

    def stop(self, seconds: float = STOP_S) -> None:
        """Ask it to stop, from any thread: what has started is finished, within `seconds` from now in all."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)
        self._stopping.set()

    def signs(self) -> GroupSigns:
        """What is to be seen of it from outside; from any thread."""
        now = time.monotonic()
        return GroupSigns(
            self.group.name,
            round_s=now - max(self._round_at, self._assignment.waited_at),
            still_s=now - self.meter.progressed_at,
            joined=self._recess.joined,
            stopping=self._stopping.is_set(),
            waiting=self._lanes.count,
            active=len(self._workers.flights),
            limit=self._workers.count,
            stalled=self._watchdog.stalled(),
            timeout=self.group.timeout,
            hold=self._control.hold,
            reason=self._control.reason,
            offsets=self._offsets,
        )

    # -- its steps ----------------------------------------------------------------------------------------------

    def _show(self) -> None:
        """For `signs`: that the loop goes round, and, now and then, how far each partition is."""
        self._round_at = now = time.monotonic()
        if now >= self._show_at:
            self._show_at = now + SHOW_EVERY_S
            progress = self._progress
            self._offsets = {p: progress.finished_before(p) for p in progress.partitions()}

    def _collect(self, timeout: float) -> None:
        """Take in what workers have finished; waits up to `timeout` for the first."""
        for landing in self._workers.landings(timeout):
            if landing.error is None:
                self._settle(landing)
            else:  # its lanes stay busy: nothing behind it may run
                self._failure = self._failure or landing.error
                self._rebalance.dying = isinstance(self._failure, MemoryError)

    def _settle(self, landing: Landing) -> None:
        """Finished records let the offset pass: what failed is finished here once it is parked. The rest runs again."""
        flight, run = landing.flight, landing.flight.run
        self.meter.landed(run.records, landing.outcomes, run.woken)
        now = time.monotonic()
        back, first, until = [], {}, {}
        for record, outcome in zip(run.records, landing.outcomes, strict=True):
            partition = (record.topic, record.partition)
            if not self._progress.waits_for(partition, flight.generation):
                continue
            if run.suspect and outcome.kind not in ("duplicate", "unrun"):
                self._suspects.tried(partition)
            if outcome.finished:
                self._progress.finished(partition, record.offset)
            elif partition not in self._rebalance.leaving:
                back.append(record)
                if outcome.first is not None:
                    first[lane_of(record)] = outcome.first
                elif outcome is BUSY:
                    until[lane_of(record)] = now + TAKEN_S
        self._lanes.settle(run, back, first, until)
        self._dispatch.landed(run, landing.waited)
        if self._suspects and (passed := self._suspects.passed(self._progress)):
            log.info("suspects.passed", group=self.group.name, partitions=names(passed))
        if run.probe:
            self._control.probed(run.succeeded, failed=run.probe_failed)

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

    def _make_way(self) -> None:
        """A rewind is to move the group's offsets: finish what has started, then be away until it is done."""
        if self._workers.flights:
            self._wait_for_room()
        else:
            self._recess.make_way()
            self._stopping.wait(HELD_S)

    def _start_runs(self) -> None:
        if self._failure is None and not self._recess.called:
            self._pace.limit(self._control.standing.rate)
            self._pace.look(self._progress)
            self._dispatch.start_runs(self._progress.generation)

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
        waiting = self._lanes.startable > 0 and len(self._workers.flights) > 0
        if not self._receive(limit, 0 if waiting else self._patience()) and waiting:
            self._collect(BUSY_S)

    def _patience(self) -> float:
        if self._workers.flights:
            return BUSY_S
        if self._lanes.startable:  # something holds it: the group, or a ramp
            return HELD_S
        until = self._lanes.next_release()
        return IDLE_S if until is None else min(IDLE_S, max(0.0, until - time.monotonic()))

    def _may_postpone(self, more: int) -> bool:
        """Asked by workers: whether one more record, beside so many that do not count yet, may be kept in memory for
        its second try."""
        return self._lanes.waits + more < MOST_POSTPONED and self._lanes.count < MOST_RECORDS * 9 // 10

    def _receive(self, limit: int, timeout: float) -> int:
        """Fetch, and put what is ours and new into the lanes; returns how much that was."""
        fetched = self._consumer.fetch(limit, timeout)
        self._polled_at = time.monotonic()
        received = self._progress.received
        new = [r for r in fetched.records if received((r.topic, r.partition), r.offset)]
        if new:
            self.meter.progressed_at = self._polled_at
        self._lanes.add(new)
        for partition, end in fetched.ends:
            self._progress.passed(partition, end)
        homeless = self._progress.partitions().intersection(fetched.homeless) if fetched.homeless else None
        if homeless:
            self._rebalance.restart(sorted(homeless))
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
            self._stopping.wait(min(POLL_EVERY_S, self._patience()))

    # -- the end --------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Finish what has started, commit, leave the group: in this order, within one deadline."""
        self.stop(MEMORY_S if isinstance(self._failure, MemoryError) else STOP_S)
        self._quietly("drain", lambda: self._await_landings(set(self._workers.flights), self._deadline))
        self._quietly("commit", lambda: self._rebalance.commit_now(self._progress.committable()))
        self._quietly("close", self._consumer.close)
        self._workers.close(self._deadline)
        self._quietly("close", self._pace.close)
        self._control.stop()
        self._watchdog.stop()
        self._lookout.stop()

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
                self._start_runs()

    def _quietly(self, what: str, act: Callable[[], object]) -> None:
        """On the way out nothing may keep the rest from being done, nor hide why we leave."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  # logged; all of it is made up for by the next start
            log.warning("group.leaving", group=self.group.name, step=what, error=str(error))

    def _at_end(self) -> bool:
        """With `exit_at_end`: whether the end is reached; looked at now and then, while nothing is under way.

        Raises PartlyDone where it will not be, because something holds the group, or keys are left behind, parked.
        """
        now = time.monotonic()
        if self._ends is None or self._recess.away or self._workers.flights or now < self._look_at:
            return False
        self._look_at = now + LOOK_EVERY_S
        self._ends.check_hold(self._control)
        if not self._ends.read(self._progress):
            return False
        self._rebalance.commit_now(self._progress.committable())
        if not self._ends.reached(self._consumer):
            return False
        self._ends.check_parked(self._assignment.patiently(lambda: self._state.parked_keys(MOST_NAMED)))
        return True


def _worker_count(group: ConsumerGroup) -> int:
    """With `batch`: two for runs, two beside them for what the retry topic wakes."""
    return group.concurrency if group.batch == 1 else min(group.concurrency, 4)
