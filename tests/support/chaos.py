"""A random model of a group: the real execution on the real database, with a broker made of lists.

Members own partitions, lose them, and go on with what they have in hand; they die before and after their commit;
retry records come late, doubled and in any order; handlers fail; ranges of history are run again. What must hold
afterwards: no effect twice in any epoch, every key's effects in the order of its topic in each, nothing left parked;
and whatever had been applied when a range was run again was applied once more.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import psycopg

from stream import Context, Event, PermanentError, TransientError, reapplies
from stream.config import RetrySettings
from stream.database import query
from stream.epochs import Epochs, Range
from stream.events import Record
from stream.lanes import Run, lane_of
from stream.outcomes import FirstTry
from stream.parking import Parking
from stream.project import Project
from tests.support.retries import RetryingWorker, retry_records
from tests.support.small import record

FAST = RetrySettings(
    first_s=0.004, most_s=0.03, budget_floor=1e9, breaker_failures=10**9, halt_failures=10**9, halt_ratio=2
)


@dataclass
class Partition:
    """A log with the offset its group has committed, and the member that owns it, in its generation."""

    log: list[Record] = field(default_factory=list)
    committed: int = 0
    position: int = 0
    owner: int = 0
    generation: int = 0


class Killed(MemoryError):
    """What a handler raises to end its process: nothing of the run is kept."""


class Chaos:
    """One run of the model. `members` threads, a relay, and somebody who moves partitions about."""

    def __init__(
        self,
        project: Project,
        url: str,
        seed: int,
        *,
        parking_class: type[Parking] = Parking,
        members: int = 3,
        keys: int = 4,
        events: int = 120,
        batch: int = 5,
        reapplying: bool = False,
    ) -> None:
        self.dice = random.Random(seed)
        self._url = url
        self._project = project
        self._parking_class = parking_class
        self._batch = batch
        self._failing = self.dice.choice((0.05, 0.1, 0.2))
        self._lock = threading.Lock()
        self._landed = threading.Condition(self._lock)
        self._draining = threading.Event()
        self._in_hand = 0  # runs
        self._started = 0.0
        self._stop = threading.Event()
        self.calm = threading.Event()  # nothing fails, dies or moves any more
        self.partitions = {
            ("things", 0): Partition(),
            ("things", 1): Partition(),
            ("testers.retry", 0): Partition(),
            ("testers.retry", 1): Partition(),
        }
        self.expected: dict[str, list[int]] = defaultdict(list)
        self.errors: list[BaseException] = []
        self._workers: list[RetryingWorker] = []
        self._members = members
        self._reapplying = reapplying
        self.ranges: list[tuple[int, Range]] = []
        self._low: dict[int, tuple[int, int]] = {}  # partition and first offset, by epoch
        self.applied_before: dict[int, set[int]] = {}  # by epoch
        self._make_events(keys, events)

    def _make_events(self, keys: int, events: int) -> None:
        recent: list[Record] = []
        for n in range(events):
            key = f"k{min(int(self.dice.expovariate(1)), keys - 1)}"  # hot keys
            made = record(self._project, key, n)
            self.expected[key].append(n)
            self._append("things", made)
            recent.append(made)
            if self.dice.random() < 0.25:  # published twice, by a relay that died
                double = self.dice.choice(recent[-3:])
                self._append("things", Record(**{f: getattr(double, f) for f in Record.__slots__}))

    def _append(self, topic: str, made: Record) -> None:
        number = (made.key or b"")[-1] % 2
        log = self.partitions[topic, number].log
        made.topic, made.partition, made.offset = topic, number, len(log)
        log.append(made)

    # -- the threads ------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Chaos for a while, then calm, then wait until nothing moves any more."""
        self._started = time.monotonic()
        acts: list[tuple[Any, ...]] = [(self._member, n) for n in range(self._members)]
        acts += [(self._relay,), (self._mover,)] + [(self._rewinder,)] * self._reapplying
        # Daemons: what a model without its locks does may never end, and must not hold the run of the tests.
        threads = [threading.Thread(target=self._guard, args=act, daemon=True) for act in acts]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.calm.set()
        threads[-1].join(30)  # who moves about is done
        self._settle()
        self._stop.set()
        for worker in self._workers:
            worker.stopping.set()
        for thread in threads:
            thread.join(30)
            if thread.is_alive():
                self.errors.append(TimeoutError(f"{thread.name} does not end"))

    def _guard(self, act: Any, *arguments: Any) -> None:
        try:
            act(*arguments)
        except BaseException as error:  # noqa: BLE001  # shown by the test
            self.errors.append(error)

    def _settle(self) -> None:
        """Wait for the end: all read, nothing parked; or for a while in which nothing changes any more."""
        deadline, still_since, last = time.monotonic() + 60, time.monotonic(), None
        with psycopg.connect(self._url, autocommit=True) as conn:
            while time.monotonic() < deadline and not self.errors:
                state = conn.execute(
                    "select (select count(*) from stream.parked), (select count(*) from stream.scheduled),"
                    " (select count(*) from effect), (select count(*) from stream.ledger)"
                ).fetchone()
                read = all(p.committed == len(p.log) for p in self.partitions.values())
                if state is not None and read and state[0] == state[1] == 0:
                    return
                if (state, read) != last:
                    still_since, last = time.monotonic(), (state, read)
                if time.monotonic() - still_since > 3:
                    return
                time.sleep(0.02)

    def _relay(self) -> None:
        dice = random.Random(self.dice.random())
        with psycopg.connect(self._url) as conn:
            while not self._stop.wait(0.002):
                records = retry_records(conn, due_only=True)
                if not self.calm.is_set():
                    records += [r for r in records if dice.random() < 0.2]
                    dice.shuffle(records)
                with self._lock:
                    for made in records:
                        self._append(
                            "testers.retry", Record(**{f: getattr(made, f) for f in Record.__slots__})
                        )

    def _mover(self) -> None:
        dice = random.Random(self.dice.random())
        while not self.calm.wait(dice.uniform(0, 0.03)):
            with self._lock:
                self._move(dice.choice(list(self.partitions.values())), dice.randrange(self._members))

    def _rewinder(self) -> None:
        """Runs ranges again: waits until nobody has anything in hand, as the command does, and moves an offset back;
        or on to where it was."""
        dice = random.Random(self.dice.random())
        with psycopg.connect(self._url, autocommit=True) as conn:
            while not self.calm.wait(dice.uniform(0.05, 0.3)):
                self._draining.set()
                with self._landed:
                    while self._in_hand:
                        self._landed.wait()
                    number = dice.randrange(2)
                    if dice.random() < 0.3 and self.ranges:
                        self._move_on(conn, number)
                    else:
                        self._run_again(conn, number, dice)
                    self._move(self.partitions["things", number], dice.randrange(self._members))
                    self._draining.clear()

    def _run_again(self, conn: psycopg.Connection[Any], number: int, dice: random.Random) -> None:
        partition = self.partitions["things", number]
        low, high = dice.randint(0, partition.committed), self._end(partition)
        if low == partition.committed:
            return
        again = Range("things", number, low, high, partition.committed)
        epoch = reapplies.plan(conn, "testers", [again], who="the test", reason=None)
        reapplies.finish(conn, "testers", epoch)
        self.ranges.append((epoch, again))
        self._low[epoch] = (number, low)
        self.applied_before[epoch] = {n for (n,) in conn.execute("select n from effect")}
        partition.committed = low

    def _move_on(self, conn: psycopg.Connection[Any], number: int) -> None:
        """Undo the newest range of the partition."""
        partition = self.partitions["things", number]
        old = max([r.old_offset for _, r in self.ranges if r.partition == number], default=0)
        if old <= partition.committed:
            return
        reapplies.pass_over(conn, "testers", "things", number, partition.committed, old)
        partition.committed = old
        self.ranges = [
            (epoch, Range(*columns))
            for epoch, *columns in conn.execute(query("reapplied_ranges"), ["testers"])
        ]

    def _end(self, partition: Partition) -> int:
        """Events are published over half a second."""
        log = partition.log
        if not log or log[0].topic != "things" or self.calm.is_set():
            return len(log)
        return int(len(log) * min(1.0, (time.monotonic() - self._started) / 0.5))

    @staticmethod
    def _move(partition: Partition, owner: int) -> None:
        partition.owner = owner
        partition.generation += 1
        partition.position = partition.committed

    def _member(self, number: int) -> None:
        dice = random.Random(self.dice.random())
        epochs = Epochs()
        worker = self._worker(number, dice, epochs)
        first: dict[int, FirstTry] = {}  # records that failed once, if they are what is read next
        while not self._stop.is_set():
            taken = None if self._draining.is_set() else self._take(number, dice, epochs)
            if taken is None:
                time.sleep(0.001)
                continue
            try:
                first = self._work(worker, number, taken, first, dice)
            finally:
                with self._landed:
                    self._in_hand -= 1
                    self._landed.notify_all()
        worker.execution.close()

    def _work(
        self,
        worker: RetryingWorker,
        number: int,
        taken: tuple[Partition, int, list[Record]],
        first: dict[int, FirstTry],
        dice: random.Random,
    ) -> dict[int, FirstTry]:
        """One run, and its offset; returns the first tries that failed in it."""
        partition, generation, records = taken
        try:
            outcomes = worker.execution.run(self._run(records, first))
        except MemoryError:
            self._die(number)
            return first
        failed = {id(r): o.first for r, o in zip(records, outcomes, strict=True) if o.first}
        if not self.calm.is_set() and dice.random() < 0.05:
            self._die(number)  # after the commit, before the offset
            return failed
        with self._lock:
            if partition.generation == generation:
                done = [outcome.finished for outcome in outcomes] + [False]
                partition.committed = max(partition.committed, records[0].offset + done.index(False))
                partition.position = partition.committed
        return failed

    @staticmethod
    def _run(records: list[Record], first: dict[int, FirstTry]) -> Run:
        """As the lanes make it: of each lane, what is known of its first record's first try."""
        heads = {lane_of(r): r for r in reversed(records)}
        again = {lane: first[id(r)] for lane, r in heads.items() if id(r) in first}
        return Run(list(records), first=again, retry=records[0].topic != "things")

    def _take(
        self, number: int, dice: random.Random, epochs: Epochs
    ) -> tuple[Partition, int, list[Record]] | None:
        with self._lock:
            epochs.learn(self.ranges)
            mine = [p for p in self.partitions.values() if p.owner == number and p.position < self._end(p)]
            if not mine:
                return None
            partition = dice.choice(mine)
            most = dice.randint(1, self._batch)
            most = min(most, self._end(partition) - partition.position)
            records = partition.log[partition.position : partition.position + most]
            if records[0].topic != "things":  # one retry record a key in a run
                keys = [r.key for r in records]
                records = records[: next((n for n, key in enumerate(keys) if key in keys[:n]), most)]
            partition.position += len(records)
            self._in_hand += 1
            return partition, partition.generation, records

    def _die(self, number: int) -> None:
        with self._lock:
            for partition in self.partitions.values():
                if partition.owner == number:
                    self._move(partition, random.randrange(self._members))

    def _worker(self, number: int, dice: random.Random, epochs: Epochs) -> RetryingWorker:
        def handle(event: Event, ctx: Context) -> None:
            chance = 1.0 if self.calm.is_set() else dice.random()
            if chance < self._failing / 2:
                raise TransientError("before")
            ctx.db.execute(
                "insert into effect (event_id, key, n, epoch) values (%s, %s, %s, %s)",
                [event.id, event.key, event.data["n"], ctx.epoch],
            )
            if dice.random() < 0.3:
                time.sleep(dice.uniform(0, 0.004))
            if chance < self._failing:
                raise ValueError("after")
            if chance < self._failing + 0.01:
                raise PermanentError("never")
            if chance < self._failing + 0.02:
                raise Killed
            if chance < self._failing + 0.04:
                with psycopg.connect(self._url, autocommit=True) as other:
                    other.execute("select pg_terminate_backend(%s)", [ctx.db.info.backend_pid])

        worker = RetryingWorker(
            self._project,
            self._url,
            handle,
            name=f"m{number}",
            settings=FAST,
            parking_class=self._parking_class,
            may_postpone=lambda _: dice.random() < 0.7,
            epochs=epochs,
            batch=dice.choice((1, 3, self._batch)),
            attempts=1_000_000,
        )
        self._workers.append(worker)
        return worker

    # -- the judge ----------------------------------------------------------------------------------------------------

    def verdict(self) -> list[str]:
        """What is wrong; nothing where all holds."""
        wrong = [f"{type(error).__name__}: {error}" for error in self.errors]
        with psycopg.connect(self._url, autocommit=True) as conn:
            effects = conn.execute("select key, n, epoch from effect order by seq").fetchall()
            letters = [
                (self._number(bytes(value)), epoch, status)
                for value, epoch, status in conn.execute(
                    "select value, epoch, status from stream.dead_letter"
                )
            ]
            left = conn.execute(
                "select convert_from(key, 'UTF8'), \"offset\", attempts, due_at is null"
                " from stream.parked order by 1, 2"
            ).fetchall()
        ever_dead = {n for n, _, _ in letters}
        if left:
            wrong.append(f"left parked: {left}")
        for key, numbers in self.expected.items():
            for epoch in (0, *self.applied_before):
                found = [n for k, n, e in effects if (k, e) == (key, epoch)]
                due = set(numbers) if epoch == 0 else self._due_again(epoch) & set(numbers)
                # Given up for good; or in this epoch, and its double run again in a newer one.
                dead = {n for n, e, status in letters if status == "open" or 0 < e == epoch}
                missing = due - set(found) - dead
                in_order = [
                    n for n in found if n not in ever_dead
                ]  # those that died may have been run again later
                read_in_order = [n for n in self._positions(epoch) if n in in_order]
                if in_order != read_in_order or len(found) != len(set(found)) or missing:
                    wrong.append(
                        f"{key} in epoch {epoch}: applied {found}, missing {sorted(missing)}, {dead=}"
                    )
        return wrong

    def _due_again(self, epoch: int) -> set[int]:
        """Events applied before the epoch, in its range, and in no newer one's."""
        return set(self._positions(epoch, newest=True)) & self.applied_before[epoch]

    def _positions(self, epoch: int, *, newest: bool = False) -> list[int]:
        """The events in order of their first record; of an epoch, in its range: there it may be a double that counts.
        `newest`: only where its range is in force."""
        known = Epochs(self.ranges)
        found: dict[int, None] = {}
        for (topic, number), partition in self.partitions.items():
            for made in partition.log if topic == "things" else ():
                if (
                    known.of(topic, number, made.offset) == epoch
                    if newest
                    else epoch == 0 or self._low[epoch] <= (number, made.offset)
                ):
                    found[self._number(made.value)] = None
        return list(found)

    def _number(self, value: bytes | None) -> int:
        number: int = self._project.codec.decode(value or b"")[1]["n"]
        return number
