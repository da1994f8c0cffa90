"""What happened to an event in a group, put together from all that wrote it down."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from stream.events import Record, event_id_of
from stream.steps import Step, in_order, of_letter, of_records, of_wait

BEGIN = datetime(2026, 8, 2, 14, 3, 11, 120000, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def error(attempt: int, seconds: float) -> dict[str, Any]:
    """As park.sql writes it."""
    when = at(seconds).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"attempt": attempt, "at": when, "worker": "w", "class": "OSError", "message": "no route"}


def failed(attempt: int, seconds: float) -> Step:
    return Step(at(seconds), "failed", attempt, "w", "OSError: no route")


def letter(attempts: int, seconds: float, **changes: Any) -> dict[str, Any]:
    row = {
        "id": 41,
        "kind": "exhausted",
        "error_class": "OSError",
        "error_message": "no route",
        "errors": [error(n, seconds - attempts + n) for n in range(attempts, 0, -1)],
        "attempts": attempts,
        "last_failed_at": at(seconds),
        "worker": "w",
        "status": "open",
        "resolved_at": None,
        "resolved_by": None,
        "resolved_reason": None,
    }
    return row | changes


def record(topic: str, headers: list[tuple[str, bytes | None]]) -> Record:
    return Record(topic, 3, 17, b"1", None, headers, int(BEGIN.timestamp() * 1000))


def test_an_event_parked_behind_another_waits_before_it_fails_itself() -> None:
    assert of_wait(at(0), []) == [Step(at(0), "parked")]
    assert of_wait(at(0), [error(1, 5)]) == [Step(at(0), "parked"), failed(1, 5)]


def test_an_event_that_was_parked_as_it_failed_was_behind_none() -> None:
    assert of_wait(at(2.001), [error(2, 2), error(1, 1)]) == [failed(2, 2), failed(1, 1)]


def test_the_try_that_an_event_died_of_is_its_death_and_no_other_is_told_twice() -> None:
    wait = of_wait(at(2.001), [error(3, 3), error(2, 2), error(1, 1)])
    steps = in_order([*wait, *of_letter(letter(3, 3))])
    death = Step(at(3), "dead", 3, "w", "OSError: no route", 41, "exhausted")
    assert steps == [failed(1, 1), failed(2, 2), death]


def test_a_replayed_event_s_tries_of_both_lives_stand_in_order() -> None:
    first = letter(
        1, 1, status="replayed", resolved_at=at(10), resolved_by="ann@shop", resolved_reason="mended"
    )
    again = of_wait(at(10.001), [error(1, 12), error(1, 1)])
    steps = in_order([*again, *of_letter(first), Step(at(20), "done", 2, "w")])
    assert [(step.what, step.at, step.attempt) for step in steps] == [
        ("dead", at(1), 1),
        ("replayed", at(10), None),
        ("failed", at(12), 1),
        ("done", at(20), 2),
    ]
    assert (steps[1].by, steps[1].reason, steps[1].letter) == ("ann@shop", "mended", 41)


def test_records_of_a_group_s_own_topics_tell_when_it_was_called_and_copied() -> None:
    id = uuid.uuid4()
    headers: list[tuple[str, bytes | None]] = [("ce_id", str(id).encode())]
    found = of_records([record("my.mail.retry", headers), record("my.mail.dlq", headers)])
    assert {of: [(step.what, step.position) for step in steps] for of, steps in found.items()} == {
        (id, "my.mail", 0): [("called", "my.mail.retry[3]@17"), ("copied", "my.mail.dlq[3]@17")]
    }


def test_a_record_without_an_id_is_about_the_position_that_it_names() -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("stream.error.topic", b"orders"),
        ("stream.error.partition", b"7"),
        ("stream.error.offset", b"1207"),
    ]
    [(id, group, epoch)] = of_records([record("mail.retry", headers)])
    origin = Record("orders", 7, 1207, b"1", None, [], 0)
    assert (id, group, epoch) == (event_id_of(origin), "mail", 0)


def test_headers_that_name_no_position_are_no_error() -> None:
    for partition in (b"x", b"", b"\xff", None):
        headers: list[tuple[str, bytes | None]] = [
            ("stream.error.topic", b"orders"),
            ("stream.error.partition", partition),
            ("stream.error.offset", b"1"),
        ]
        one = record("mail.retry", headers)
        assert list(of_records([one])) == [(event_id_of(one), "mail", 0)]
