"""Fleet: the groups of one process, each in a thread of its own, stopped together."""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections.abc import Sequence

from stream.errors import OutOfMemory, PartlyDone, StreamError
from stream.processor import STOP_S, Processor

GRACE_S = 1.0  # of a stop's time, kept for what waits for a broker that hangs


class Fleet:
    """Runs processors until they end: one that fails stops the others, cleanly."""

    def __init__(self, processors: Sequence[Processor]) -> None:
        self._processors = processors
        self._ended: queue.SimpleQueue[tuple[Processor, BaseException | None]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._deadline = 0.0

    def run(self) -> bool:
        """Run all to their end. False: the deadline of a stop passed, and something still does not return.

        Raises the gravest error that a group ended with; PartlyDone, the mildest, stops nobody.
        """
        # What is loaded by now stays: the garbage collector need not walk over it at every run of records, nor look
        # for cycles every 700 objects, which is every 30 events: they have none.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 10, 10)
        for processor in self._processors:
            threading.Thread(
                target=self._run, args=(processor,), name=processor.group.name, daemon=True
            ).start()
        errors: list[BaseException] = []
        in_time = True
        for _ in self._processors:
            error = self._next_end()
            if error is not None:
                errors.append(error)
                if not isinstance(error, PartlyDone):
                    self.stop()
            elif self._stopping.is_set() and time.monotonic() > self._deadline:
                in_time = False
                break
        if errors:
            raise max(errors, key=_gravity)
        return in_time

    def stop(self) -> None:
        """Ask all to finish what has started; safe in a signal handler, and twice."""
        if not self._stopping.is_set():
            self._deadline = time.monotonic() + STOP_S
            self._stopping.set()
            for processor in self._processors:
                processor.stop(STOP_S - GRACE_S)

    def _next_end(self) -> BaseException | None:
        """Wait for the next group to end; without one, when the deadline of a stop has passed."""
        while not (self._stopping.is_set() and time.monotonic() > self._deadline):
            try:
                processor, error = self._ended.get(timeout=0.2)
            except queue.Empty:
                continue
            if isinstance(error, MemoryError):
                return OutOfMemory(
                    f"group {processor.group.name!r}: out of memory",
                    hint=f"stream consume --group {processor.group.name}",
                )
            return error
        return None

    def _run(self, processor: Processor) -> None:
        try:
            processor.run()
        except BaseException as error:  # noqa: BLE001  # `run` raises it
            self._ended.put((processor, error))
        else:
            self._ended.put((processor, None))


def _gravity(error: BaseException) -> tuple[int, int]:
    """7 (start me again), then whatever is not expected, then refusals, then what is only partly done."""
    code = error.exit_code if isinstance(error, StreamError) else 1
    order = (6, 5, 3, 4, 2, 1, 7)
    return (order.index(code) if code in order else len(order), code)
