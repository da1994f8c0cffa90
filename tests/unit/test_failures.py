"""What is kept of an exception, whatever it does to us."""

from __future__ import annotations

import pytest

from stream.errors import PermanentError, TransientError
from stream.failures import MOST_MESSAGE_BYTES, MOST_STACK_BYTES, Failure, clamped, failure_of
from stream.schemas import DecodeError


def raised(error: BaseException) -> Failure:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001  # what a handler may raise
        return failure_of(caught, "handler")


def test_what_failed_alike_has_one_fingerprint_whatever_its_message() -> None:
    one, two = raised(ValueError("order 1")), raised(ValueError("order 2"))
    assert one.fingerprint == two.fingerprint
    assert raised(KeyError("order 1")).fingerprint != one.fingerprint
    assert failure_of(ValueError("order 1"), "commit").fingerprint != one.fingerprint


def test_class_message_and_stack_are_kept() -> None:
    kept = raised(PermanentError("order has no lines"))
    assert (kept.error_class, kept.message) == ("stream.errors.PermanentError", "order has no lines")
    assert "in raised" in (kept.stack or "")
    assert kept.deploy_fault


def test_retry_after_is_kept() -> None:
    assert raised(TransientError("later", retry_after=3)).retry_after == 3


def test_bytes_without_a_schema_are_a_deploys_fault_and_garbage_is_not() -> None:
    assert failure_of(DecodeError("unknown-schema", "x"), "decode").deploy_fault
    assert not failure_of(DecodeError("truncated", "x"), "decode").deploy_fault


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("ha")


@pytest.mark.parametrize(
    "error",
    [
        Hostile(),
        ValueError("x" * 10**6),
        ValueError("\0" * 5000),
        ValueError("\ud800"),
        ValueError("é" * 5000),
        ValueError(),
    ],
)
def test_hostile_texts_are_kept_as_text_that_fits(error: BaseException) -> None:
    kept = raised(error)
    assert kept.message
    for text, most in ((kept.message, MOST_MESSAGE_BYTES), (kept.stack or "", MOST_STACK_BYTES)):
        assert len(text.encode()) <= most
        assert "\0" not in text


def test_a_stack_keeps_its_end_and_a_message_its_beginning() -> None:
    assert clamped("0123456789", 8) == "01234..."
    assert clamped("0123456789", 8, end=True) == "...56789"
    assert clamped("é" * 10, 8) == "éé..."
