"""A random model of a group: the real execution on the real database, with a broker made of lists.

Members own partitions, lose them, and go on with what they have in hand; they die before and after their commit;
retry records come late, doubled and in any order; handlers fail. What must hold afterwards: no effect twice, every
key's effects in the order of its topic, nothing left parked.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import psycopg

from stream import Context, Event, PermanentError, TransientError
from stream.config import RetrySettings
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
    ) -> None:
        self.dice = random.Random(seed)
        self._url = url
        self._project = project
        self._parking_class = parking_class
        self._batch = batch
        self._failing = self.dice.choice((0.05, 0.1, 0.2))
        self._lock = threading.Lock()
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
        self._make_events(keys, events)

    def _make_events(self, keys: int, events: int) -> None:
        recent: list[Record] = []
        for n in range(events):
            key = f"k{min(int(self.dice.expovariate(1)), keys - 1)}"  # hot keys
            made = record(self._project, key, n)
            self.expected[key].append(n)
            self._append("things", made)
            recent.append(made)
            if self.dice.random() < 0.1:  # published twice, by a relay that died
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
        acts: list[tuple[Any, ...]] = [(self._member, n) for n in range(self._members)]
        acts += [(self._relay,), (self._mover,)]
        # Daemons: what a model without its locks does may never end, and must not hold the run of the tests.
        threads = [threading.Thread(target=self._guard, args=act, daemon=True) for act in acts]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.calm.set()
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

    @staticmethod
    def _move(partition: Partition, owner: int) -> None:
        partition.owner = owner
        partition.generation += 1
        partition.position = partition.committed

    def _member(self, number: int) -> None:
        dice = random.Random(self.dice.random())
        worker = self._worker(number, dice)
        first: dict[int, FirstTry] = {}  # records that failed once, if they are what is read next
        while not self._stop.is_set():
            taken = self._take(number, dice)
            if taken is None:
                time.sleep(0.001)
                continue
            partition, generation, records = taken
            try:
                run = self._run(records, first)
                outcomes = worker.execution.run(run)
                finished = [outcome.finished for outcome in outcomes]
                first = {id(r): o.first for r, o in zip(records, outcomes, strict=True) if o.first}
            except MemoryError:
                self._die(number)
                continue
            if not self.calm.is_set() and dice.random() < 0.05:
                self._die(number)  # after the commit, before the offset
                continue
            with self._lock:
                if partition.generation == generation:
                    done = finished.index(False) if False in finished else len(finished)
                    partition.committed = max(partition.committed, records[0].offset + done)
                    partition.position = partition.committed
        worker.execution.close()

    @staticmethod
    def _run(records: list[Record], first: dict[int, FirstTry]) -> Run:
        """As the lanes make it: of each lane, what is known of its first record's first try."""
        heads = {lane_of(r): r for r in reversed(records)}
        again = {lane: first[id(r)] for lane, r in heads.items() if id(r) in first}
        return Run(list(records), first=again, retry=records[0].topic != "things")

    def _take(self, number: int, dice: random.Random) -> tuple[Partition, int, list[Record]] | None:
        with self._lock:
            mine = [p for p in self.partitions.values() if p.owner == number and p.position < len(p.log)]
            if not mine:
                return None
            partition = dice.choice(mine)
            most = dice.randint(1, self._batch)
            records = partition.log[partition.position : partition.position + most]
            if records[0].topic != "things":  # one retry record a key in a run
                records = list({r.key: r for r in reversed(records[:1])}.values())
            partition.position += len(records)
            return partition, partition.generation, records

    def _die(self, number: int) -> None:
        with self._lock:
            for partition in self.partitions.values():
                if partition.owner == number:
                    self._move(partition, random.randrange(self._members))

    def _worker(self, number: int, dice: random.Random) -> RetryingWorker:
        def handle(event: Event, ctx: Context) -> None:
            chance = 1.0 if self.calm.is_set() else dice.random()
            if chance < self._failing / 2:
                raise TransientError("before")
            ctx.db.execute(
                "insert into effect (event_id, key, n) values (%s, %s, %s)",
                [event.id, event.key, event.data["n"]],
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
            applied: dict[str, list[int]] = defaultdict(list)
            for key, n in conn.execute("select key, n from effect order by seq"):
                applied[key].append(n)
            dead = self._dead(conn)
            left = conn.execute(
                "select convert_from(key, 'UTF8'), \"offset\", attempts, due_at is null"
                " from stream.parked order by 1, 2"
            ).fetchall()
        if left:
            wrong.append(f"left parked: {left}")
        for key, numbers in self.expected.items():
            want = [n for n in numbers if n not in dead]
            if applied[key] != want:
                wrong.append(
                    f"{key}: applied {applied[key]}, in the topic {want}, dead {sorted(dead & set(numbers))}"
                )
        return wrong

    def _dead(self, conn: psycopg.Connection[Any]) -> set[int]:
        values = conn.execute("select value from stream.dead_letter").fetchall()
        return {self._project.codec.decode(bytes(value))[1]["n"] for (value,) in values}
