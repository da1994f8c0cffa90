"""What is done about failures, by values and a clock."""

from __future__ import annotations

import math
import smtplib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.config import RetrySettings
from stream.errors import PermanentError, TransientError
from stream.policy import (
    CircuitBreaker,
    Dead,
    DeployWatch,
    FailurePolicy,
    Retry,
    RetryBudget,
    kind_of,
    ramp,
    winner,
)
from stream.schemas import DecodeError

SETTINGS = RetrySettings()
POLICY = FailurePolicy(attempts=5, give_up_after_s=3600)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermanentError("no"), "permanent"),
        (TransientError("later"), "unavailable"),
        (TimeoutError(), "unavailable"),
        (ConnectionRefusedError(), "unavailable"),
        (FileNotFoundError(), "unavailable"),
        (smtplib.SMTPConnectError(554, b"no"), "unavailable"),
        (smtplib.SMTPHeloError(501, b"no"), "unavailable"),
        (smtplib.SMTPAuthenticationError(535, b"bad password"), "unavailable"),
        (smtplib.SMTPServerDisconnected("gone"), "unavailable"),
        (smtplib.SMTPSenderRefused(421, b"busy", "a"), "unavailable"),
        (smtplib.SMTPSenderRefused(550, b"no", "a"), "permanent"),
        (smtplib.SMTPDataError(451, b"later"), "unavailable"),
        (smtplib.SMTPDataError(554, b"spam"), "permanent"),
        (smtplib.SMTPRecipientsRefused({"a": (550, b"no"), "b": (551, b"no")}), "permanent"),
        (smtplib.SMTPRecipientsRefused({"a": (550, b"no"), "b": (450, b"busy")}), "unavailable"),
        (smtplib.SMTPRecipientsRefused({}), "unavailable"),
        (ValueError("x"), "failure"),
        (SystemExit(3), "failure"),
        (KeyError("x"), "failure"),
    ],
)
def test_an_error_has_the_kind_the_contract_says(error: BaseException, kind: str) -> None:
    assert kind_of(error, "handler") == kind


def test_bytes_that_are_no_event_are_a_kind_of_their_own() -> None:
    assert kind_of(DecodeError("truncated", "x"), "decode") == "decode"
    assert (
        kind_of(DecodeError("truncated", "x"), "handler") == "failure"
    )  # a handler that decodes something itself


@pytest.mark.parametrize("kind", ["permanent", "decode"])
def test_what_no_try_can_help_is_dead_at_once(kind) -> None:
    assert POLICY.decide(kind, 1, 0, 0.5) == Dead(kind)


def test_a_failure_has_its_attempts_and_no_more() -> None:
    assert [type(POLICY.decide("failure", n, 10**9, 0.5)) for n in range(1, 7)] == [Retry] * 4 + [Dead] * 2
    assert POLICY.decide("failure", 5, 0, 0.5) == Dead("exhausted")


def test_what_is_unavailable_is_tried_until_its_time_is_over_however_often() -> None:
    assert isinstance(POLICY.decide("unavailable", 100_000, 3599, 0.5), Retry)
    assert POLICY.decide("unavailable", 1, 3600, 0.5) == Dead("unavailable")


def test_the_last_try_is_not_later_than_its_time() -> None:
    assert POLICY.decide("unavailable", 9, 3599, 1.0) == Retry(1)


@given(
    attempts=st.integers(1, 10**9),
    chance=st.floats(0, 1),
    after=st.none() | st.floats(allow_nan=True, allow_infinity=True),
    over=st.booleans(),
)
def test_a_delay_is_a_time_within_the_cap_whatever_it_is_made_of(attempts, chance, after, over) -> None:
    decided = FailurePolicy(5, math.inf).decide(
        "unavailable", attempts, 0, chance, retry_after=after, over_budget=over
    )
    assert isinstance(decided, Retry)
    assert 0 <= decided.delay_s <= SETTINGS.most_s
    if over:
        assert decided.delay_s >= SETTINGS.most_s / 2


def test_delays_grow_twofold_and_jitter_from_nothing() -> None:
    delays = [POLICY.decide("unavailable", n, 0, 1.0) for n in range(1, 12)]
    assert delays == [Retry(min(300.0, 2.0**n)) for n in range(1, 12)]
    assert POLICY.decide("unavailable", 4, 0, 0.0) == Retry(0)


def test_retry_after_is_the_least_and_is_clamped() -> None:
    assert POLICY.decide("unavailable", 1, 0, 0.5, retry_after=20) == Retry(20)
    assert POLICY.decide("unavailable", 1, 0, 0.5, retry_after=10**9) == Retry(300)
    assert POLICY.decide("unavailable", 1, 0, 0.5, retry_after=-5) == Retry(1)


def test_the_budget_allows_a_floor_and_a_tenth_of_the_successes() -> None:
    budget = RetryBudget(SETTINGS)
    assert sum(budget.spend(0) for _ in range(1000)) == 300  # what was saved up
    budget.succeeded(100)
    assert sum(budget.spend(0) for _ in range(1000)) == 10
    assert sum(budget.spend(2) for _ in range(1000)) == 10  # five a second
    assert sum(budget.spend(10**6) for _ in range(1000)) == 300


def test_the_breaker_opens_after_five_unavailable_in_a_row_over_three_keys() -> None:
    breaker = CircuitBreaker(SETTINGS)
    assert [bool(breaker.failed(key, 0)) for key in "abaab"] == [False] * 5
    assert breaker.failed("c", 1) is not None


def test_one_key_that_fails_does_not_open_it_while_others_succeed() -> None:
    breaker = CircuitBreaker(SETTINGS)
    for second in range(1000):
        assert breaker.failed("bad", second) is None
        breaker.succeeded()


def test_the_breaker_opens_when_nothing_else_happened_for_a_minute_however_rare_the_orders() -> None:
    breaker = CircuitBreaker(SETTINGS)
    assert [bool(breaker.failed("only", t)) for t in (0, 1, 3, 7, 15, 31, 63)] == [False] * 6 + [True]


def test_failures_of_long_ago_are_no_outage() -> None:
    breaker = CircuitBreaker(SETTINGS)
    assert breaker.failed("a", 0) is None
    assert breaker.failed("a", 10_000) is None


def test_the_deploy_watch_speaks_when_more_than_half_of_a_hundred_died() -> None:
    watch = DeployWatch(SETTINGS)
    said = []
    for _ in range(60):
        watch.succeeded()
        said.append(watch.died())
    assert not any(said)  # half, not more
    said = [watch.died() for _ in range(3)]
    assert any(said)
    for _ in range(200):
        watch.succeeded()
    assert watch.died() is None


def test_after_an_outage_the_first_second_has_as_many_starts_as_the_group_has_handlers() -> None:
    assert [ramp(t, 8, SETTINGS) for t in (0, 0.99, 1, 2, 7.9, 8)] == [8, 8, 24, 56, 8 * 255, None]


def test_who_wins() -> None:
    order = ["halted", "paused", "breaker_open", "retry_budget", "backoff", "rate"]
    for n, name in enumerate(order):
        assert winner(**{other: True for other in order[n:]}) == name.replace(
            "retry_budget", "retry budget"
        ).replace("breaker_open", "breaker open")
    assert winner() is None


def test_scaling_multiplies_every_time() -> None:
    scaled = SETTINGS.scaled(0.01)
    assert (scaled.first_s, scaled.most_s, scaled.breaker_silence_s) == (0.01, 3.0, 0.6)
    assert (scaled.breaker_failures, scaled.budget_floor) == (5, 500)
