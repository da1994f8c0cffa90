"""Which commands a signal ends with 0 while they are still being loaded."""

import pytest

from stream.__main__ import in_the_foreground


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("relay", True),
        ("topics tail orders --follow", True),
        ("topics inspect orders -f -c 3", True),
        ("topics inspect orders", False),
        ("--log-level debug --log-format=json consume --group loyalty", True),
        ("demo --count 10", True),
        ("dev --project relay", True),
        ("demo place --csv orders", False),
        ("migrate --project demo", False),
        ("order show relay", False),
        ("outbox discard --reason demo", False),
        ("--log-level relay migrate", False),
        ("--help", False),
        ("", False),
    ],
)
def test_only_a_command_in_the_foreground_stops_with_0(words: str, expected: bool) -> None:
    assert in_the_foreground(words.split()) == expected
