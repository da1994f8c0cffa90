"""Values as JSON."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from stream.views import as_json, clock


@dataclass
class Thing:
    id: uuid.UUID
    key: bytes
    at: datetime
    inner: list[tuple[str, None]]


def test_values_are_json_with_times_in_utc_and_keys_as_they_are_shown() -> None:
    at = datetime(2026, 8, 2, 16, 3, 11, 120000, timezone(timedelta(hours=2)))
    assert as_json(Thing(uuid.UUID(int=7), b"\xff", at, [("a", None)])) == {
        "id": "00000000-0000-0000-0000-000000000007",
        "key": "\\xff",
        "at": "2026-08-02T14:03:11.120000Z",
        "inner": [["a", None]],
    }


def test_a_time_is_shown_in_utc_as_one_word_that_says_so() -> None:
    at = datetime(2026, 8, 2, 16, 3, 11, 120999, timezone(timedelta(hours=2)))
    assert clock(at) == "2026-08-02T14:03:11.120Z"
    assert clock(at.replace(microsecond=0)) == "2026-08-02T14:03:11.000Z"
