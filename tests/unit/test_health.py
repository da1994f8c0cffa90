from __future__ import annotations

import pytest

from stream.config import RetrySettings
from stream.health import Health


@pytest.fixture
def health() -> Health:
    return Health(RetrySettings())


def test_many_unavailable_in_a_row_wish_the_breaker_open_and_a_success_between_does_not(health) -> None:
    for n in range(4):
        health.unavailable(f"k{n}")
    health.succeeded(1)
    for n in range(4):
        health.unavailable(f"k{n}")
    assert health.take_wishes() == (None, None)
    health.unavailable("k4")
    opens, halts = health.take_wishes()
    assert opens == "5 failures in a row, of at least 3 keys"
    assert halts is None
    assert health.take_wishes() == (None, None)


def test_what_succeeded_before_the_first_failure_counts_for_the_share_that_fails(health) -> None:
    health.succeeded(1)
    health.succeeded(49)
    for _ in range(50):
        health.died()
    assert health.take_wishes() == (None, None), "half of the last hundred are not over half"
    health.died()
    assert health.take_wishes() == (None, "51 of the last 100 events failed for good")


def test_a_streak_is_broken_by_any_success_since_it_was_asked(health) -> None:
    assert not health.streak_broken()
    health.succeeded(500)
    assert health.streak_broken()
    assert not health.streak_broken()


def test_retries_run_out_where_nothing_succeeds(health) -> None:
    allowed = sum(health.may_retry() for _ in range(400))
    assert 300 <= allowed < 400
    health.succeeded(1000)
    assert health.may_retry()


def test_what_held_the_group_counts_no_more_once_it_goes_on(health) -> None:
    for n in range(5):
        health.unavailable(f"k{n}")
    for _ in range(100):
        health.died()
    assert None not in health.take_wishes()
    health.start_over()
    health.unavailable("k1")
    health.died()
    assert health.take_wishes() == (None, None)
