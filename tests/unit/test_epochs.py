"""Which epoch a position is of, and what is left of a range that is passed over."""

from __future__ import annotations

import pytest

from stream.epochs import Epochs, Range, passed_over


def test_a_position_is_of_the_newest_range_that_holds_it() -> None:
    epochs = Epochs([(1, Range("orders", 0, 10, 50, 40)), (2, Range("orders", 0, 20, 30, 30))])
    assert [epochs.of("orders", 0, offset) for offset in (9, 10, 19, 20, 29, 30, 49, 50)] == [
        *(0, 1, 1, 2, 2, 1, 1, 0),
    ]
    assert epochs.of("orders", 1, 20) == epochs.of("stock", 0, 20) == 0


def test_what_is_learned_replaces_what_was_known() -> None:
    epochs = Epochs([(1, Range("orders", 0, 0, 9, 9))])
    assert epochs
    epochs.learn([])
    assert not epochs and epochs.of("orders", 0, 5) == 0


@pytest.mark.parametrize(
    ("committed", "new", "left"),
    [
        (25, 30, [(10, 25), (30, 50)]),  # some records on
        (25, 40, [(10, 25)]),  # back where the group stood: nothing more is run again
        (25, 45, [(10, 25)]),
        (10, 40, []),
        (10, 20, [(20, 50)]),
    ],
)
def test_what_is_passed_over_is_not_run_again(committed: int, new: int, left: list[tuple[int, int]]) -> None:
    rest = passed_over(Range("orders", 0, 10, 50, old_offset=40), committed, new)
    assert [(range.from_offset, range.to_offset) for range in rest] == left
