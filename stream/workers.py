"""Workers: the threads that apply runs. Each has an Execution, and so a database connection, of its own."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from stream.execution import Execution
from stream.lanes import Run
from stream.outcomes import Outcome


@dataclass(slots=True, eq=False)
class Flight:
    """A run on its way, since `begun` (monotonic seconds). `generation` is that of the assignment it was taken in.

    `abandoned`: its partitions are another member's now; set by the processor, read by the worker.
    """

    run: Run
    generation: int
    abandoned: bool = False
    begun: float = field(default_factory=time.monotonic)

    def is_abandoned(self) -> bool:
        return self.abandoned


Gate = queue.SimpleQueue[Flight | None]  # a worker's own


@dataclass(frozen=True, slots=True)
class Landing:
    """A flight's end: its outcomes, or the error that ends the group. `waited`: the share of its time that its worker
    did not compute, from 0 to 1."""

    flight: Flight
    outcomes: list[Outcome]
    waited: float
    error: BaseException | None = None


class Workers:
    """Owned by the processor's thread. Whole runs go in and out: no lock and no queue is met once an event."""

    def __init__(self, count: int, name: str, make: Callable[[str], Execution]) -> None:
        self.flights: set[Flight] = set()
        self.count = count
        self._landings: queue.SimpleQueue[tuple[Gate, Landing]] = queue.SimpleQueue()
        self._gates: list[Gate] = [queue.SimpleQueue() for _ in range(count)]
        # The last one that landed flies next: its connection, and its process in the database, have all at hand.
        self._idle = list(reversed(self._gates))
        self._threads = [
            # Daemons: a handler that never returns must not keep the process from ending.
            threading.Thread(
                target=self._work, args=(gate, make(f"{name}-{n}")), name=f"{name}-{n}", daemon=True
            )
            for n, gate in enumerate(self._gates, 1)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def idle(self) -> int:
        return self.count - len(self.flights)

    def start(self, flight: Flight) -> None:
        """Hand a run to an idle worker."""
        self.flights.add(flight)
        self._idle.pop().put(flight)

    def landings(self, timeout: float) -> Iterator[Landing]:
        """What has landed; waits up to `timeout` seconds for the first."""
        while self.flights:
            try:
                gate, landing = self._landings.get(timeout > 0, timeout)
            except queue.Empty:
                return
            timeout = 0
            self._idle.append(gate)
            self.flights.discard(landing.flight)
            yield landing

    def close(self, deadline: float) -> None:
        """End the threads that are idle; wait for them until `deadline` (monotonic seconds)."""
        for gate in self._gates:
            gate.put(None)
        for thread in self._threads:
            # Idle ones end at once; a moment even past the deadline, so that they close what they hold.
            thread.join(max(0.1, deadline - time.monotonic()) if not self.flights else 0.0)

    def _work(self, gate: Gate, execution: Execution) -> None:
        while (flight := gate.get()) is not None:
            outcomes: list[Outcome] = []
            failure: BaseException | None = None
            begun, computed = time.monotonic(), time.thread_time()
            try:
                outcomes = execution.run(flight.run, flight.is_abandoned)
            except BaseException as error:  # noqa: BLE001  # the processor's thread raises it
                failure = error
            took, computed = time.monotonic() - begun, time.thread_time() - computed
            waited = 1 - computed / took if took > 0 else 0.0
            self._landings.put((gate, Landing(flight, outcomes, waited, failure)))
        execution.close()
