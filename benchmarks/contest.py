"""Contest: two ways to do the same work, run in turn (A B, B A, A B, ...) and compared pair by pair."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import psutil

from benchmarks.process import Cost
from benchmarks.stage import say

QUIET_CORES = 0.35  # more than this at work for somebody else, and a run says little
QUIET_WAIT_S = 20.0


@dataclass(frozen=True)
class Sample:
    """One checked run: events a second (or milliseconds), what it cost, and whatever else is worth telling."""

    value: float
    cost: Cost
    also: dict[str, float] = field(default_factory=dict)

    @property
    def quiet(self) -> bool:
        return self.cost.foreign_cores <= QUIET_CORES


@dataclass(frozen=True)
class Contest:
    """`ours` against `other`; the ratio of each pair is ours / other. `floor` is the least it should be."""

    name: str
    unit: str
    ours: Callable[[], Sample]
    other: Callable[[], Sample]
    floor: float | None = None
    ceiling: float | None = None
    other_name: str = "raw"


@dataclass
class Result:
    """The pairs of one contest, in order."""

    contest: Contest
    ours: list[Sample] = field(default_factory=list)
    other: list[Sample] = field(default_factory=list)

    @property
    def quiet(self) -> list[int]:
        """Pairs during which the machine did little else; all of them where there are not three."""
        pairs = range(len(self.ours))
        quiet = [n for n in pairs if self.ours[n].quiet and self.other[n].quiet]
        return quiet if len(quiet) >= 3 else list(pairs)

    @property
    def ratios(self) -> list[float]:
        return [self.ours[n].value / self.other[n].value for n in self.quiet]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def also(self) -> dict[str, float]:
        """The same of what else was told of both, where there is something to divide by."""
        pairs = [(self.ours[n].also, self.other[n].also) for n in self.quiet]
        return {
            name: median(ours[name] / other[name] for ours, other in pairs)
            for name in self.ours[0].also
            if all(other.get(name) for _, other in pairs)
        }

    @property
    def holds(self) -> bool | None:
        """Whether the ratio keeps its floor or ceiling; None where there is none."""
        if self.contest.floor is not None:
            return self.ratio >= self.contest.floor
        if self.contest.ceiling is not None:
            return self.ratio <= self.contest.ceiling
        return None


def hold(contest: Contest, pairs: int) -> Result:
    """Run the contest: pairs in turn, each run fresh and checked.

    It waits for the machine to have little else to do, and runs up to as many pairs more for those that were
    disturbed all the same. A single pair is a smoke test and waits for nothing.
    """
    result = Result(contest)
    n = undisturbed = 0
    while undisturbed < pairs and n < (2 * pairs if pairs > 1 else 1):
        order = [(contest.ours, result.ours), (contest.other, result.other)]
        for run, samples in order if n % 2 == 0 else reversed(order):
            if pairs > 1:
                wait_for_quiet()
            samples.append(run())
        ours, other = result.ours[-1], result.other[-1]
        n += 1
        undisturbed += ours.quiet and other.quiet
        say(
            f"  {contest.name}: pair {n}: {ours.value:,.1f} against {other.value:,.1f} {contest.unit},"
            f" ratio {ours.value / other.value:.2f}"
            f" (other work meanwhile: {ours.cost.foreign_cores:.1f} and {other.cost.foreign_cores:.1f} cores)"
        )
    return result


def wait_for_quiet() -> None:
    """Wait until nobody else uses much of the machine, but not for ever."""
    deadline = time.monotonic() + QUIET_WAIT_S
    cores = psutil.cpu_count() or 1
    while psutil.cpu_percent(0.5) / 100 * cores > QUIET_CORES and time.monotonic() < deadline:
        pass
