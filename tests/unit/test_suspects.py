from __future__ import annotations

import pytest

from stream.groups import ConsumerGroup
from stream.offsets import Progress
from stream.suspects import IDLE_S, Suspects, window

P, Q = ("orders", 0), ("orders.retry", 0)


@pytest.fixture
def group() -> ConsumerGroup:
    return ConsumerGroup("testers", topics=["orders"], start="beginning")


@pytest.fixture
def suspects(group: ConsumerGroup) -> Suspects:
    return Suspects(group)


def reading(*offsets: int) -> Progress:
    progress = Progress()
    progress.start({P: 0})
    for offset in offsets:
        progress.received(P, offset)
        progress.finished(P, offset)
    return progress


def test_a_partition_that_was_released_has_none(suspects: Suspects) -> None:
    assert not suspects
    assert P not in suspects


def test_they_end_where_the_log_did_when_its_owner_died(suspects: Suspects) -> None:
    suspects.watch({P: 3})
    assert P in suspects
    assert suspects.passed(reading(0, 1)) == []
    assert suspects.passed(reading(0, 1, 2)) == [P]
    assert not suspects


def test_they_end_after_as_many_as_its_owner_can_have_had_in_hand(suspects, group) -> None:
    suspects.watch({P: 10_000})
    for _ in range(window(group) - 1):
        suspects.tried(P)
    assert suspects.passed(reading(0)) == []
    suspects.tried(P)
    assert suspects.passed(reading(0)) == [P]


def test_a_log_that_ends_in_markers_nobody_is_given_does_not_hold_them_for_ever(suspects: Suspects) -> None:
    suspects.watch({P: 5, Q: 1})
    suspects.give_up_waiting(100.0)
    suspects.give_up_waiting(100.0 + IDLE_S)
    suspects.tried(P)  # something came after all
    suspects.give_up_waiting(200.0)
    assert suspects
    suspects.give_up_waiting(200.1 + IDLE_S)
    assert not suspects


def test_a_partition_that_goes_takes_its_suspects_along(suspects: Suspects) -> None:
    suspects.watch({P: 5, Q: 1})
    suspects.forget([P])
    assert (P in suspects, Q in suspects) == (False, True)
