"""Trend: what a window of looks at a partition says: how fast records come and go, when it is done, whether it moves.

The verdict needs no threshold of anybody's: it asks how the lag went, by the rules of LinkedIn's Burrow. A group that
is far behind and gets nearer is well; one that is ten records behind and does not move is not. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Movement = Literal["ok", "falling behind", "stalled"]

WINDOW_S = 105.0  # looks are ten seconds apart
RATE_S = 35.0  # rates are those of the last half minute
LEAST_LOOKS = 4  # fewer say nothing of how it goes


@dataclass(frozen=True, slots=True)
class Look:
    """A partition as it was `at` (seconds): the group's committed offset, None where it has none, and the end."""

    at: float
    committed: int | None
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - (self.committed or 0))


@dataclass(frozen=True, slots=True)
class Trend:
    """Records a second into the partition and out of it, None where there was one look only.

    `eta_seconds`: when the lag is gone if both go on so: 0 where there is none, None where it will not be.
    """

    rate_in: float | None = None
    rate_out: float | None = None
    eta_seconds: float | None = None
    movement: Movement = "ok"


def seconds_rated(looks: Sequence[Look]) -> float:
    """Over how long the rates of a partition are measured; looks oldest first, the last one being now."""
    looks = _since_reset(looks)
    return looks[-1].at - _first_rated(looks).at if looks else 0.0


def trend(looks: Sequence[Look], lag: int | None) -> Trend:
    """Of one partition, by its looks, oldest first, the last one being now; `lag` is that of now."""
    looks = _since_reset(looks)
    if not looks:
        return Trend(eta_seconds=time_to_drain(lag, None, None))
    now = looks[-1]
    first = _first_rated(looks)
    seconds = now.at - first.at
    if seconds <= 0:
        return Trend(eta_seconds=time_to_drain(lag, None, None))
    rate_in = (now.end - first.end) / seconds
    rate_out = None if now.committed is None else (now.committed - (first.committed or 0)) / seconds
    return Trend(rate_in, rate_out, time_to_drain(lag, rate_in, rate_out), movement(looks))


def time_to_drain(lag: int | None, rate_in: float | None, rate_out: float | None) -> float | None:
    """Seconds until a lag is gone; None where it is not known, or never."""
    if lag == 0:
        return 0.0
    if lag is None or rate_in is None or rate_out is None or rate_out <= rate_in:
        return None
    return lag / (rate_out - rate_in)


def movement(looks: Sequence[Look]) -> Movement:
    """How the lag went, by one table; looks oldest first, none before the group's offset was last set back.

    | in the window                                    |                |
    |--------------------------------------------------|----------------|
    | fewer looks than say anything; once no lag       | ok             |
    | lag all the time, the committed offset stood     | stalled        |
    | lag all the time, it never fell and has grown    | falling behind |
    | anything else                                    | ok             |
    """
    window = [look for look in looks if look.at >= looks[-1].at - WINDOW_S]
    if len(window) < LEAST_LOOKS or any(look.lag == 0 for look in window):
        return "ok"
    if window[0].committed == window[-1].committed:
        return "stalled"
    lags = [look.lag for look in window]
    fell = any(after < before for before, after in pairwise(lags))
    return "falling behind" if not fell and lags[-1] > lags[0] else "ok"


def _first_rated(looks: Sequence[Look]) -> Look:
    return next(look for look in looks if look.at >= looks[-1].at - RATE_S)


def _since_reset(looks: Sequence[Look]) -> Sequence[Look]:
    """What came before the group was set back, or its topic made anew, says nothing of now."""
    start = 0
    for n in range(1, len(looks)):
        before, after = looks[n - 1], looks[n]
        if after.end < before.end or (before.committed or 0) > (after.committed or 0):
            start = n
        elif before.committed is None and after.committed is not None:
            start = n  # it began here: what lies before was never its
    return looks[start:]
