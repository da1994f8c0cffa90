"""What is counted: histograms, tries by what became of them, classes of errors."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from stream.events import Record
from stream.meters import DURATION_BOUNDS, LATENCY_BOUNDS, MOST_CLASSES, OTHER_CLASS, GroupMeter, Histogram
from stream.outcomes import BUSY, DONE, DUPLICATE, NO_HANDLER, PARKED, WOKEN, Outcome

POSTPONED = Outcome("postponed")


def records(count: int, topic: str = "things", timestamp: int = 0) -> list[Record]:
    return [Record(topic, 0, n, b"k", b"", (), timestamp) for n in range(count)]


@given(st.lists(st.sampled_from([0.0, *DURATION_BOUNDS, *(b * 1.5 for b in DURATION_BOUNDS)])))
def test_many_at_once_are_counted_as_one_by_one(values: list[float]) -> None:
    single, together = Histogram(DURATION_BOUNDS), Histogram(DURATION_BOUNDS)
    for value in values:
        single.note(value)
    together.note_all(list(values))
    assert together.counts == single.counts
    assert sum(together.counts) == len(values)


def test_a_value_on_a_bound_is_counted_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.note(1.0)
    histogram.note(1.5, times=3)
    histogram.note(9.0)
    assert (histogram.counts, histogram.sum) == ([1, 3, 1], 14.5)


def test_tries_are_counted_by_topic_and_what_became_of_them() -> None:
    meter = GroupMeter("email", ["things"], ["Happened"])
    meter.landed(records(5), [DONE, DONE, DUPLICATE, NO_HANDLER, PARKED], [])
    meter.landed(records(1, "email.retry"), [WOKEN], [("things", DONE)])
    meter.landed(records(2), [POSTPONED, BUSY], [])
    meter.failed("things")
    meter.died("things", "ValueError")
    assert meter.tries() == {
        ("things", "ok"): 3,
        ("things", "duplicate"): 1,
        ("things", "skipped"): 1,
        ("things", "retry"): 1,
        ("things", "dlq"): 1,
    }
    assert meter.dead() == {("things", "ValueError"): 1}


def test_every_outcome_of_a_topic_is_there_before_it_happens() -> None:
    assert set(GroupMeter("email", ["a", "b"], []).tries().values()) == {0}
    assert len(GroupMeter("email", ["a", "b"], []).tries()) == 10


def test_only_what_was_done_has_a_latency() -> None:
    meter = GroupMeter("email", ["things"], [])
    meter.landed(records(3), [DONE, DUPLICATE, DONE], [])
    assert sum(meter.latencies["things"].counts) == 2
    assert meter.latencies["things"].counts[-1] == 2  # since 1970
    assert len(meter.latencies["things"].counts) == len(LATENCY_BOUNDS) + 1


def test_classes_of_errors_that_a_program_makes_without_end_are_one() -> None:
    meter = GroupMeter("email", ["things"], [])
    for n in range(MOST_CLASSES + 50):
        meter.died("things", f"Made{n}")
    meter.died("things", "Made0")
    assert len(meter.dead()) == MOST_CLASSES + 1
    assert meter.dead()["things", OTHER_CLASS] == 50
    assert meter.dead()["things", "Made0"] == 2


def test_the_durations_of_all_workers_are_put_together() -> None:
    meter = GroupMeter("email", ["things"], ["Happened", "Listed"])
    dice = random.Random(1)
    for worker in (meter.durations(), meter.durations()):
        for _ in range(10):
            worker["Happened"].note(dice.uniform(0, 200))
    assert sum(meter.handled()["Happened"].counts) == 20
    assert sum(meter.handled()["Listed"].counts) == 0
