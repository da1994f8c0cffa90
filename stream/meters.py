"""Meters: what the threads of a process count, in plain numbers. Whoever shows them reads them where they are.

Each number has one thread that writes it, so that nothing is locked at each event: a reader sees it a moment late.
What is rare, a failure, is counted under a lock, by whichever worker meets it.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

from stream.events import Record
from stream.outcomes import Outcome

# Upper bounds, in seconds. Of handlers: from a statement that is only queued to past any usual timeout. Quantiles are
# computed by whoever collects them: those of several processes cannot be put together, counts can be added.
DURATION_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0,
)  # fmt: skip
# Of events on their way: from milliseconds to the hours of an outage or of a run through history.
LATENCY_BOUNDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0,
)  # fmt: skip
FINISHED = ("done", "duplicate", "skipped", "parked", "dead")  # a call is none, nor what comes again
PROCESSED = {
    "done": "ok",
    "skipped": "skipped",
    "duplicate": "duplicate",
}  # of outcomes; failures count themselves
OUTCOMES = ("ok", "skipped", "duplicate", "retry", "dlq")
MOST_CLASSES = 100  # of errors, shown by their name; classes may be made while a program runs
OTHER_CLASS = "other"


class Histogram:
    """How many values lie up to each bound, and their sum. `counts` has one more, for what lies above all of them."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def note(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def note_all(self, values: list[float]) -> None:
        """Many at once: sorted, which costs less than to find a place for each."""
        values.sort()
        seen = 0
        counts = self.counts
        for n, bound in enumerate(self.bounds):
            upto = bisect_right(values, bound, seen)
            counts[n] += upto - seen
            seen = upto
            if seen == len(values):
                break
        counts[-1] += len(values) - seen
        self.sum += sum(values)


Durations = dict[str, Histogram]  # by event type


class GroupMeter:
    """What one process counts of one group. `processed` and `latencies` belong to the loop's thread."""

    def __init__(self, group: str, topics: Sequence[str], types: Iterable[str]) -> None:
        self.group = group
        self.processed: Counter[tuple[str, str]] = Counter()  # by topic and kind of outcome
        self.latencies = {topic: Histogram(LATENCY_BOUNDS) for topic in topics}
        self.rebalances = 0
        self.progressed_at = time.monotonic()  # when a run last landed, or records last came
        self._types = tuple(types)
        self._durations: list[Durations] = []
        self._lock = threading.Lock()
        self._failed: Counter[tuple[str, str]] = Counter()  # by topic, and retry or dlq
        self._dead: Counter[tuple[str, str]] = Counter()  # by topic and class of error

    def durations(self) -> Durations:
        """A histogram a type for one more worker, which alone writes them."""
        self._durations.append({type: Histogram(DURATION_BOUNDS) for type in self._types})
        return self._durations[-1]

    def landed(
        self, records: Sequence[Record], outcomes: Sequence[Outcome], woken: Iterable[tuple[str, Outcome]]
    ) -> None:
        """A run has landed: what became of its records, and of the events that they woke, each with its topic."""
        self.progressed_at = time.monotonic()
        kinds = [(record.topic, outcome.kind) for record, outcome in zip(records, outcomes, strict=True)]
        self.processed.update(kinds)
        self.processed.update([(topic, outcome.kind) for topic, outcome in woken])
        now = time.time()
        for topic, histogram in self.latencies.items():
            done = (topic, "done")
            if done in kinds:
                histogram.note_all(
                    [
                        max(0.0, now - record.timestamp / 1000)
                        for record, kind in zip(records, kinds, strict=True)
                        if kind == done
                    ]
                )

    def failed(self, topic: str) -> None:
        """A try failed, and another follows. From any thread, as `died`."""
        with self._lock:
            self._failed[topic, "retry"] += 1

    def died(self, topic: str, error_class: str) -> None:
        """An event was given up."""
        with self._lock:
            self._failed[topic, "dlq"] += 1
            known = {name for _, name in self._dead}
            shown = error_class if error_class in known or len(known) < MOST_CLASSES else OTHER_CLASS
            self._dead[topic, shown] += 1

    # -- for who shows them ---------------------------------------------------------------------------------------

    def outcomes(self) -> Counter[str]:
        """Events by the kind of their outcome, of those that are finished."""
        found: Counter[str] = Counter()
        for (_, kind), count in dict(self.processed).items():
            if kind in FINISHED:
                found[kind] += count
        return found

    def tries(self) -> dict[tuple[str, str], int]:
        """By topic and outcome; every outcome of the group's topics from the start, at 0."""
        found = dict.fromkeys(((topic, outcome) for topic in self.latencies for outcome in OUTCOMES), 0)
        for (topic, kind), count in dict(self.processed).items():
            if kind in PROCESSED:
                outcome = (topic, PROCESSED[kind])
                found[outcome] = found.get(outcome, 0) + count
        with self._lock:
            return found | self._failed

    def dead(self) -> dict[tuple[str, str], int]:
        """By topic and class of error."""
        with self._lock:
            return dict(self._dead)

    def handled(self) -> Durations:
        """How long handlers took, of all workers together."""
        found = {}
        for type in self._types:
            total = found[type] = Histogram(DURATION_BOUNDS)
            for durations in self._durations:
                one = durations[type]
                total.counts = [a + b for a, b in zip(total.counts, one.counts, strict=True)]
                total.sum += one.sum
        return found


class RelayMeter:
    """What one relay counts, in rows by topic. Its thread alone writes."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.published: Counter[str] = Counter(dict.fromkeys(topics, 0))
        self.rejected: Counter[str] = Counter()

    def topics(self) -> list[str]:
        return sorted(dict(self.published).keys() | dict(self.rejected).keys())
