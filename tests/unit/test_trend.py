"""What a window of looks says: rates, time to drain, and whether a partition moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.trend import Look, Trend, movement, seconds_rated, time_to_drain, trend


def looks(*places: tuple[int | None, int], every: float = 10.0) -> list[Look]:
    """(committed, end), ten seconds apart."""
    return [Look(n * every, committed, end) for n, (committed, end) in enumerate(places)]


def test_rates_are_what_came_and_went_in_the_last_half_minute() -> None:
    old = looks(*((0, 0) for _ in range(10)))  # idle, until 90 s
    busy = [Look(100 + 10 * n, 300 * n, 100 * n + 5000) for n in range(7)]
    found = trend([*old, *busy], lag=3800)
    assert (found.rate_in, found.rate_out) == (10.0, 30.0)
    assert found.eta_seconds == 190.0
    assert seconds_rated([*old, *busy]) == 30.0


def test_one_look_says_nothing_but_that_there_is_no_lag() -> None:
    assert trend(looks((5, 9)), lag=4) == Trend()
    assert trend(looks((9, 9)), lag=0) == Trend(eta_seconds=0.0)
    assert trend([], lag=None) == Trend()


@pytest.mark.parametrize(
    ("lag", "rate_in", "rate_out", "seconds"),
    [
        (0, 5.0, 1.0, 0.0),
        (100, 5.0, 10.0, 20.0),
        (100, 10.0, 10.0, None),
        (100, 10.0, 0.0, None),
        (100, None, 10.0, None),
        (None, 1.0, 10.0, None),
    ],
)
def test_the_time_to_drain(
    lag: int | None, rate_in: float | None, rate_out: float | None, seconds: float | None
) -> None:
    assert time_to_drain(lag, rate_in, rate_out) == seconds


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([(0, 50), (0, 50), (0, 50)], "ok"),  # too few to say
        ([(0, 50), (0, 50), (0, 50), (0, 50)], "stalled"),
        ([(0, 50), (0, 60), (0, 70), (0, 80)], "stalled"),  # rather than falling behind
        ([(0, 50), (10, 70), (20, 90), (30, 110)], "falling behind"),
        ([(0, 50), (10, 60), (20, 70), (30, 80)], "ok"),  # behind, but no further
        ([(0, 50), (10, 70), (40, 90), (41, 110)], "ok"),  # it fell once
        ([(0, 50), (50, 50), (50, 90), (50, 110)], "ok"),  # it was there
        ([(0, 5000), (1, 5000), (2, 5000), (3, 5000)], "ok"),  # slow, and nearer
        ([(None, 5), (None, 9), (None, 12), (None, 20)], "stalled"),
    ],
)
def test_the_movement_of_a_window(places: list[tuple[int | None, int]], said: str) -> None:
    assert movement(looks(*places)) == said


def test_only_the_window_counts() -> None:
    before = [Look(n * 10.0, n * 10, 1000) for n in range(20)]
    stood = [Look(200 + n * 10.0, 190, 1000) for n in range(11)]
    assert movement([*before, *stood]) == "stalled"
    assert movement([*before, *stood[:6]]) == "ok"


@pytest.mark.parametrize(
    "reset", [(10, 100), (50, 40), (None, 100)], ids=["rewound", "topic made anew", "offsets gone"]
)
def test_nothing_is_said_of_what_lies_before_a_reset(reset: tuple[int | None, int]) -> None:
    stood = looks((90, 95), (90, 95), (90, 95), (90, 95), reset)
    assert trend(stood, lag=90) == Trend()


def test_a_group_that_has_just_begun_is_no_thousand_records_a_second() -> None:
    found = trend(looks((None, 5000), (5000, 5000), (5000, 5000)), lag=0)
    assert (found.rate_out, found.movement) == (0.0, "ok")
    assert seconds_rated(looks((None, 5000), (5000, 5000), (5000, 5000))) == 10.0
    assert seconds_rated(looks((None, 5000), (5000, 5000))) == 0.0
    assert seconds_rated([]) == 0.0


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=15),
    st.integers(0, 100),
)
def test_no_window_makes_a_rate_negative_or_a_time_past(places: list[tuple[int, int]], lag: int) -> None:
    found = trend(looks(*places), lag)
    for value in (found.rate_in, found.rate_out, found.eta_seconds):
        assert value is None or value >= 0
