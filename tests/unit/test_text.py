"""Text for a terminal."""

from __future__ import annotations

import pytest

from stream.cli.text import columns, duration, plural, printable


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert columns(("KEY", "ROWS"), [("536365", "1"), ("注文", "12")]) == [
        "KEY     ROWS",
        "536365  1",
        "注文    12",
    ]


def test_what_others_wrote_cannot_steer_the_terminal_and_stays_on_one_line() -> None:
    assert printable("a\x1b[2J\r\nb\u202e") == "a\\x1b[2J\\r\\nb\\u202e"


def test_long_text_is_cut_to_its_limit() -> None:
    assert printable("x" * 500, 10) == "xxxxxxx..."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0081, "8 ms"),
        (-0.0004, "-0 ms"),
        (0.9994, "999 ms"),
        (2.44, "2.4 s"),
        (119.9, "119.9 s"),
        (120, "2 min"),
        (7200, "2.0 h"),
        (172800, "2.0 d"),
    ],
)
def test_a_duration_has_the_unit_that_fits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_one_is_not_plural() -> None:
    assert [plural(n, "row") for n in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
