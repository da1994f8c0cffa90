"""What is done about a failure. Pure: values and a clock in, decisions out.

a handler raised ─> kind_of ─> FailurePolicy.decide ─> Retry | Dead
many failed      ─> CircuitBreaker (the provider is down), DeployWatch (our own code is wrong)
who wins         ─> `winner`, where several of these would hold an event back
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from stream.config import RetrySettings
from stream.errors import PermanentError, TransientError
from stream.outcomes import Stage
from stream.schemas import DecodeError

FailureKind = Literal["permanent", "decode", "crash", "unavailable", "failure"]
DeadKind = Literal["permanent", "decode", "unavailable", "exhausted", "crash"]
Hold = Literal["halted", "paused", "breaker open", "retry budget", "backoff", "rate"]


class ProcessDied(Exception):
    """What an event fails with that was being tried each time its process died."""

    def __init__(self, deaths: int) -> None:
        super().__init__(f"its process died {deaths} times while this event was being tried")


def kind_of(error: BaseException, stage: Stage) -> FailureKind:
    """What sort of failure an error is, as the contract lists them, in that order.

    Every exception of smtplib is an OSError, hence the order: a mailbox that does not exist is permanent, a server
    that refuses us altogether (connect, HELO, a wrong password) is not the mail's fault.
    """
    if stage == "decode":
        return "decode"
    if isinstance(error, ProcessDied):
        return "crash"
    if isinstance(error, PermanentError) or _is_refused_mail(error):
        return "permanent"
    if isinstance(error, TransientError | OSError):  # TimeoutError is one
        return "unavailable"
    return "failure"


def _is_refused_mail(error: BaseException) -> bool:
    smtplib = sys.modules.get("smtplib")  # not imported: no error of it
    if smtplib is None:
        return False
    if isinstance(error, smtplib.SMTPSenderRefused | smtplib.SMTPDataError):
        return bool(error.smtp_code >= 500)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return bool(error.recipients) and all(code >= 500 for code, _ in error.recipients.values())
    return False


def is_deploy_fault(error: BaseException, kind: FailureKind) -> bool:
    """Whether a bad deploy makes such failures: what the code refuses, and schemas it does not have. Garbage bytes
    are nobody's deploy."""
    return kind == "permanent" or (isinstance(error, DecodeError) and error.reason == "unknown-schema")


@dataclass(frozen=True, slots=True)
class Retry:
    """Again in so many seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Dead:
    """Given up."""

    kind: DeadKind


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """A group's limits: `attempts` for what might be the event's fault, `give_up_after_s` for what is not there."""

    attempts: int
    give_up_after_s: float
    settings: RetrySettings = field(default_factory=RetrySettings)

    def decide(
        self,
        kind: FailureKind,
        attempts: int,
        age_s: float,
        chance: float,
        *,
        retry_after: float | None = None,
        over_budget: bool = False,
    ) -> Retry | Dead:
        """What becomes of an event after `attempts` failed tries, the first of them `age_s` seconds ago.

        `chance` is a random number from 0 to 1. Permanent: dead. Unavailable: again until `give_up_after`, however
        many attempts. Anything else: again up to `attempts`.
        """
        if kind in ("permanent", "decode", "crash"):
            return Dead(kind)
        if kind == "failure":
            if attempts >= self.attempts:
                return Dead("exhausted")
            return Retry(self._delay(attempts, chance, None, over_budget))
        left = self.give_up_after_s - age_s
        if left <= 0:
            return Dead("unavailable")
        return Retry(min(left, self._delay(attempts, chance, retry_after, over_budget)))

    def _delay(self, attempts: int, chance: float, retry_after: float | None, over_budget: bool) -> float:
        """Full jitter, so that what failed together does not come back together."""
        most = self.settings.most_s
        if winner(retry_budget=over_budget, backoff=True) == "retry budget":
            return most * (0.5 + chance / 2)
        # The cap first: 2 to the power of a thousand attempts is no float.
        delay = chance * min(most, self.settings.first_s * 2.0 ** min(attempts, 30))
        if retry_after is not None and retry_after == retry_after:  # not NaN
            delay = max(delay, min(max(retry_after, 0.0), most))
        return delay


class RetryBudget:
    """At most `budget_ratio` retries a success, beside a floor: a storm of retries helps no sick provider."""

    def __init__(self, settings: RetrySettings) -> None:
        self._settings = settings
        self._most = settings.budget_floor * settings.budget_saved_s
        self._saved = self._most
        self._at: float | None = None

    def succeeded(self, count: int) -> None:
        self._saved = min(self._most, self._saved + count * self._settings.budget_ratio)

    def spend(self, now: float) -> bool:
        """Take one retry; False where there is none left."""
        if self._at is not None:
            self._saved = min(self._most, self._saved + (now - self._at) * self._settings.budget_floor)
        self._at = now
        if self._saved < 1:
            return False
        self._saved -= 1
        return True


class CircuitBreaker:
    """Says when a provider is down, from what one process saw: many unavailable in a row over several keys, or
    nothing but unavailable for a while, however few."""

    def __init__(self, settings: RetrySettings) -> None:
        self._settings = settings
        self._failures = 0
        self._lanes: set[object] = set()
        self._since = self._last = 0.0

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, lane: object, now: float) -> str | None:
        """Note one unavailable failure; the reason to open, if there is one now."""
        settings = self._settings
        if self._failures and now - self._last > 2 * settings.most_s:
            self._failures = 0  # too long ago to be the same outage
        if not self._failures:
            self._since = now
            self._lanes.clear()
        self._last = now
        self._failures += 1
        if len(self._lanes) < settings.breaker_keys:
            self._lanes.add(lane)
        if self._failures >= settings.breaker_failures and len(self._lanes) >= settings.breaker_keys:
            return f"{self._failures} failures in a row, of at least {len(self._lanes)} keys"
        if self._failures > 1 and now - self._since >= settings.breaker_silence_s:
            keys = "1 key" if len(self._lanes) == 1 else f"at least {len(self._lanes)} keys"
            return f"nothing but failures for {now - self._since:.0f} s, of {keys}"
        return None


class DeployWatch:
    """Says when more than half of the last hundred events died of what a bad deploy makes, in one process.

    Ten in a row are counted by the database, over all processes and restarts (parking.py).
    """

    def __init__(self, settings: RetrySettings) -> None:
        self._ratio = settings.halt_ratio
        self._last: deque[bool] = deque(maxlen=settings.halt_window)
        self._faults = 0

    def succeeded(self, count: int = 1) -> None:
        for _ in range(min(count, self._last.maxlen or 0)):
            self._note(False)

    def died(self) -> str | None:
        """Note one death; the reason to halt, if there is one now."""
        self._note(True)
        if len(self._last) == self._last.maxlen and self._faults > self._ratio * len(self._last):
            return f"{self._faults} of the last {len(self._last)} events failed for good"
        return None

    def _note(self, fault: bool) -> None:
        if len(self._last) == self._last.maxlen:
            self._faults -= self._last[0]
        self._last.append(fault)
        self._faults += fault


def ramp(since_s: float, concurrency: int, settings: RetrySettings) -> int | None:
    """How many events may have started so long after an outage ended; None once there is no limit any more."""
    steps = int(since_s / settings.ramp_s) if settings.ramp_s > 0 else 10
    return None if steps >= 8 else concurrency * (2 ** (steps + 1) - 1)


def by_an_operator(reason: str | None) -> str:
    """Why a group is paused."""
    return f"by an operator: {reason}" if reason else "by an operator"


def winner(
    *,
    halted: bool = False,
    paused: bool = False,
    breaker_open: bool = False,
    retry_budget: bool = False,
    backoff: bool = False,
    rate: bool = False,
) -> Hold | None:
    """What holds an event back, where several would: the first of this table; None where nothing does.

    | hold         | of             | ends                                              | meanwhile                 |
    |--------------|----------------|---------------------------------------------------|---------------------------|
    | halted       | the group      | a probe succeeds (one a minute), or an operator   | one probe, nobody dies    |
    | paused       | the group      | its time has come, or an operator                 | nothing, no probes either |
    | breaker open | the group      | a probe succeeds (1 s to 30 s apart)              | one probe, nothing counts |
    | retry budget | a failed event | after half to all of the longest delay            |                           |
    | backoff      | a failed event | when it is due                                    |                           |
    | rate         | an event       | at its slot                                       |                           |
    """
    table: tuple[tuple[Hold, bool], ...] = (
        ("halted", halted),
        ("paused", paused),
        ("breaker open", breaker_open),
        ("retry budget", retry_budget),
        ("backoff", backoff),
        ("rate", rate),
    )
    return next((hold for hold, holds in table if holds), None)
