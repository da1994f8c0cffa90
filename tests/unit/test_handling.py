"""How much of a run is decoded together."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from stream.events import Record
from stream.handling import DECODED_BYTES, DECODED_TOGETHER, Work, pieces
from stream.lanes import lane_of


def work(size: int | None) -> Work:
    record = Record("things", 0, 0, b"k", None if size is None else bytes(size), [], 0)
    return Work(record, lane_of(record), uuid.uuid4(), "Happened", None)


@given(st.lists(st.one_of(st.none(), st.integers(0, 400_000)), max_size=20))
def test_all_come_in_order_and_no_piece_goes_on_once_it_is_large(sizes: list[int | None]) -> None:
    works = [work(size) for size in sizes]
    found = list(pieces(works))
    assert [each for piece in found for each in piece] == works
    for piece in found:
        assert sum(len(each.record.value or b"") for each in piece[:-1]) <= DECODED_BYTES
        assert len(piece) <= DECODED_TOGETHER


def test_small_ones_are_decoded_some_together() -> None:
    works = [work(500) for _ in range(500)]
    assert [len(piece) for piece in pieces(works)] == [DECODED_TOGETHER] * 7 + [500 - 7 * DECODED_TOGETHER]
