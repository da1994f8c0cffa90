"""How a command in the foreground is stopped: the first signal in order, the second at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

OF_A_COMMAND = (signal.SIGTERM, signal.SIGINT)


class Stopper:
    """The first signal says `notice` and calls `stop`; the second ends the process at once with 130 or 143.

    A first signal before `stop` is set ends the process with 0: nothing is under way. `hurry` is what a second
    signal still does.
    """

    def __init__(self, notice: str, signals: Sequence[signal.Signals] = OF_A_COMMAND) -> None:
        self.stop: Callable[[], None] | None = None
        self.hurry: list[Callable[[], None]] = []
        self._notice = notice
        self._seen = False
        for number in signals:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._seen:
            for action in self.hurry:
                action()
            os._exit(128 + number)
        self._seen = True
        if self.stop is None:
            os._exit(0)
        # Not print, nor a log: a signal can come in the middle of one, while this thread holds its lock.
        with suppress(OSError):  # a terminal that is gone is no reason not to stop
            os.write(2, f"{self._notice}; the same signal again stops at once\n".encode())
        self.stop()


def interrupt() -> None:
    """As `Stopper.stop`: raises KeyboardInterrupt, wherever the main thread is."""
    raise KeyboardInterrupt
