"""Health: what the worker threads of one group see of their own failing, put together. Safe between threads.

They report after each transaction. What follows from it for all processes of the group is written down by another
thread (control.py), which takes the wishes from here and tells back what holds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from stream.config import RetrySettings
from stream.policy import CircuitBreaker, DeployWatch, RetryBudget


class Health:
    """`halted`: the group is, by what the database said last; nobody may die now.

    `successes` only says whether there were any since somebody looked: two threads that count at once may lose one.
    Until something has failed there is nothing else to note, and no lock to take.
    """

    def __init__(self, settings: RetrySettings) -> None:
        self.halted = False
        self.open_wish: str | None = None
        self.halt_wish: str | None = None
        self.successes = 0
        self._settings = settings
        self._lock = threading.Lock()
        self._failed = False  # something has, in this process
        self._asked = 0  # `successes` when `streak_broken` was last asked
        self._budget = RetryBudget(settings)
        self._breaker = CircuitBreaker(settings)
        self._watch = DeployWatch(settings)

    def succeeded(self, count: int) -> None:
        """So many handlers did what they should."""
        self.successes += count
        if self._failed:
            with self._lock:
                self._budget.succeeded(count)
                self._breaker.succeeded()
                self._watch.succeeded(count)

    def unavailable(self, lane: object) -> None:
        """What an event of this lane needs was not there."""
        with self._noting():
            reason = self._breaker.failed(lane, time.monotonic())
            self.open_wish = self.open_wish or reason

    def died(self) -> None:
        """An event died of what a bad deploy does."""
        with self._noting():
            reason = self._watch.died()
            self.halt_wish = self.halt_wish or reason

    def halt(self, reason: str) -> None:
        """The group must stop here."""
        with self._lock:
            self.halt_wish = self.halt_wish or reason

    def start_over(self) -> None:
        """The group goes on: what held it, found by whichever process, is over, and must not count for the next."""
        with self._lock:
            self._breaker = CircuitBreaker(self._settings)
            self._watch = DeployWatch(self._settings)

    def may_retry(self) -> bool:
        """Whether the budget of retries has one left; takes it."""
        with self._noting():
            return self._budget.spend(time.monotonic())

    def streak_broken(self) -> bool:
        """Whether something succeeded since this was last asked."""
        with self._lock:
            before, self._asked = self._asked, self.successes
            return before != self._asked

    def take_wishes(self) -> tuple[str | None, str | None]:
        """Reasons to open the breaker and to halt, if there are any; they are the caller's then."""
        with self._lock:
            wishes = (self.open_wish, self.halt_wish)
            self.open_wish = self.halt_wish = None
            return wishes

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """The lock, for the note of a failure; what succeeded before the first is noted by then."""
        with self._lock:
            if not self._failed:
                self._failed = True
                self._watch.succeeded(self.successes)
            yield
