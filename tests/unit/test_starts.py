"""Start offsets: the whole table, and that no reset is silent."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.starts import Place, Start, Stop, resolve

KNOWN = Place(committed=50, low=10, high=100, planned=10, seen=True)


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (KNOWN, 50),
        (replace(KNOWN, committed=10), 10),
        (replace(KNOWN, committed=100), 100),
        (replace(KNOWN, committed=None, seen=False), 10),
        (replace(KNOWN, committed=None, seen=False, planned=100), 100),
    ],
)
def test_a_usual_start_says_nothing(place: Place, offset: int) -> None:
    assert resolve(place) == Start(offset)


def test_a_partition_added_later_starts_at_its_beginning_whatever_the_policy() -> None:
    start = resolve(replace(KNOWN, committed=None, seen=False, planned=None, low=0))
    assert isinstance(start, Start)
    assert (start.offset, start.gap) == (0, None)
    assert "new partition" in str(start.note)
    assert start.grown


def test_a_partition_is_grown_at_its_first_start_only() -> None:
    later = replace(KNOWN, planned=None)
    assert resolve(later) == Start(50)
    assert resolve(replace(later, seen=False)) == Start(50, grown=True)
    assert resolve(replace(later, seen=False, committed=4)) == Start(
        10, "retention took records that were not read", (4, 10), grown=True
    )


def test_a_lost_commit_starts_over_where_the_group_once_began_and_says_so() -> None:
    start = resolve(replace(KNOWN, committed=None, planned=40))
    assert isinstance(start, Start)
    assert (start.offset, start.gap) == (40, None)
    assert "committed offset is gone" in str(start.note)


def test_a_lost_commit_of_a_pruned_ledger_stops() -> None:
    assert isinstance(resolve(replace(KNOWN, committed=None, ledger_covers=False)), Stop)


def test_a_commit_below_the_log_starts_at_the_log_and_names_the_gap() -> None:
    start = resolve(replace(KNOWN, committed=4))
    assert isinstance(start, Start)
    assert (start.offset, start.gap) == (10, (4, 10))


def test_records_gone_before_the_first_start_are_a_gap_too() -> None:
    start = resolve(replace(KNOWN, committed=None, seen=False, planned=3))
    assert isinstance(start, Start)
    assert start.gap == (3, 10)


def test_a_commit_beyond_the_end_stops() -> None:
    assert isinstance(resolve(replace(KNOWN, committed=101)), Stop)


def test_a_recreated_topic_stops_even_when_the_offsets_would_fit() -> None:
    assert isinstance(resolve(replace(KNOWN, recreated=True)), Stop)


@given(
    committed=st.none() | st.integers(0, 30),
    low=st.integers(0, 30),
    records=st.integers(0, 30),
    planned=st.none() | st.integers(0, 30),
    seen=st.booleans(),
)
def test_a_start_lies_in_the_log_and_whatever_it_leaves_out_is_named(
    committed: int | None, low: int, records: int, planned: int | None, seen: bool
) -> None:
    decision = resolve(Place(committed, low, low + records, planned, seen))
    if isinstance(decision, Stop):
        return
    assert low <= decision.offset <= low + records
    if committed is not None and decision.offset != committed:
        assert decision.gap == (committed, decision.offset)
    if decision.gap is not None:
        assert decision.note
