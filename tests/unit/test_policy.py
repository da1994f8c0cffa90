"""When a failed event is tried again."""

from hypothesis import given
from hypothesis import strategies as st

from stream import TransientError
from stream.policy import MOST_S, retry_delay

ATTEMPTS = st.integers(1, 10**9)
CHANCES = st.floats(0, 1)


@given(ATTEMPTS, CHANCES)
def test_no_delay_is_longer_than_the_cap_whatever_the_attempt(attempt: int, chance: float) -> None:
    assert 0 <= retry_delay(attempt, ValueError(), chance) <= MOST_S


@given(CHANCES)
def test_delays_grow_until_the_cap(chance: float) -> None:
    delays = [retry_delay(attempt, None, chance) for attempt in range(1, 12)]
    assert delays == sorted(delays)
    assert retry_delay(1, None, 1.0) == 2.0
    assert retry_delay(11, None, 1.0) == MOST_S


@given(ATTEMPTS, CHANCES, st.none() | st.floats(allow_nan=False))
def test_retry_after_is_the_least_but_no_more_than_the_cap(
    attempt: int, chance: float, retry_after: float | None
) -> None:
    delay = retry_delay(attempt, TransientError("later", retry_after=retry_after), chance)
    assert 0 <= delay <= MOST_S
    if retry_after is not None:
        assert delay >= min(max(retry_after, 0), MOST_S)
