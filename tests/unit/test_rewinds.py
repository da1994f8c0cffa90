"""Rewinds: where each scenario leads, what is said of it, and what cannot be read."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.errors import Refused, UsageError
from stream.rewinds import (
    Move,
    PartitionState,
    RewindPlan,
    Target,
    in_scope,
    parse_duration,
    parse_topic,
    plan,
)

KNOWN = PartitionState(committed=50, low=10, high=100)
PARTITION = ("orders", 3)


def move(target: Target, state: PartitionState = KNOWN) -> Move:
    [only] = plan("stock", target, {PARTITION: state}).moves
    return only


@pytest.mark.parametrize(
    ("target", "new", "note"),
    [
        (Target("to-earliest"), 10, None),
        (Target("to-latest"), 100, "skips 50"),
        (Target("to-current"), 50, None),
        (Target("to-offset", 20), 20, None),
        (Target("to-offset", 5), 10, "clamped"),
        (Target("to-offset", 101), 100, "clamped, skips 50"),
        (Target("shift-by", -40), 10, None),
        (Target("shift-by", -41), 10, "clamped"),
        (Target("shift-by", 1), 51, "skips 1"),
        (Target("from-file", offsets={PARTITION: 3}), 10, "clamped"),
        (Target("to-group", group="email", offsets={PARTITION: 77}), 77, "skips 27"),
        (Target("to-datetime"), 100, "past the end, skips 50"),
    ],
)
def test_each_scenario_leads_where_its_row_says(target: Target, new: int, note: str | None) -> None:
    found = move(target)
    assert (found.new, found.note) == (new, note)


def test_a_time_leads_to_the_first_record_not_older() -> None:
    assert move(Target("to-datetime"), PartitionState(50, 10, 100, at=42)).new == 42


def test_an_empty_partition_says_so_and_nothing_else() -> None:
    for target in (Target("to-earliest"), Target("to-offset", 7), Target("to-datetime")):
        found = move(target, PartitionState(100, 100, 100))
        assert (found.new, found.note, found.records) == (100, "empty", 0)


def test_without_a_commit_there_is_nothing_to_shift_and_all_up_to_the_end_is_read() -> None:
    none = PartitionState(None, 10, 100)
    with pytest.raises(Refused, match=r"no committed offset for orders\[3\]"):
        move(Target("shift-by", 1), none)
    assert (move(Target("to-current"), none).new, move(Target("to-current"), none).note) == (100, "no commit")
    found = move(Target("to-offset", 30), none)
    assert (found.records, found.skipped, found.old) == (70, 0, None)


def test_a_file_or_another_group_moves_only_what_it_names() -> None:
    states = {("orders", 0): KNOWN, ("orders", 1): KNOWN}
    found = plan("stock", Target("from-file", offsets={("orders", 1): 20}), states)
    assert [each.place for each in found.moves] == [("orders", 1)]


@given(
    st.sampled_from(["to-earliest", "to-latest", "to-offset", "shift-by", "to-datetime", "from-file"]),
    st.integers(-(2**40), 2**40),
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.integers(0, 2000),
)
def test_no_scenario_but_to_current_leaves_the_log(
    scenario: str, number: int, low: int, size: int, committed: int
) -> None:
    target = Target(scenario, number, offsets={PARTITION: number})  # type: ignore[arg-type]
    found = move(target, PartitionState(committed, low, low + size))
    assert low <= found.new <= low + size
    assert 0 <= found.records <= size
    assert not (found.records and found.skipped)


def test_a_plan_adds_up_and_knows_what_undoes_it() -> None:
    found = RewindPlan(
        "stock",
        [
            Move("a", 0, 50, 20, 100),
            Move("a", 1, None, 90, 100),
            Move("a", 2, 5, 9, 100),
            Move("a", 3, 7, 7, 9),
        ],
    )
    assert (found.total, found.skipped) == (40, 4)
    assert found.ranges == {("a", 0): (20, 50), ("a", 1): (90, 100)}
    assert found.changes == {("a", 0): 20, ("a", 1): 90, ("a", 2): 9}
    assert found.olds == {("a", 0): 50, ("a", 2): 5, ("a", 3): 7}


def test_a_scope_is_topics_or_some_of_their_partitions() -> None:
    there = [("orders", 0), ("orders", 1), ("stock", 0)]
    assert in_scope(there, []) == set(there)
    assert in_scope(there, [parse_topic("orders:1,0"), parse_topic("stock")]) == set(there)
    assert in_scope(there, [parse_topic("orders:1")]) == {("orders", 1)}
    with pytest.raises(UsageError, match="does not read 'order'; it reads orders, stock"):
        in_scope(there, [parse_topic("order")])
    with pytest.raises(UsageError, match="orders has partitions 0 to 1, got 2"):
        in_scope(there, [parse_topic("orders:1,2")])


@pytest.mark.parametrize(
    "text", ["", ":1", "orders:", "orders:x", "orders:1,", "orders:-1", "orders:1:2", "o:²"]
)
def test_what_is_no_topic_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected TOPIC"):
        parse_topic(text)


def test_a_duration_is_iso_8601_of_days_and_less() -> None:
    assert parse_duration("P1DT2H3M4.5S") == timedelta(days=1, hours=2, minutes=3, seconds=4.5)
    assert parse_duration("pt90m") == timedelta(minutes=90)


def test_a_duration_may_be_short() -> None:
    assert parse_duration("2h") == timedelta(hours=2)
    assert parse_duration("1d12h30m1.5s") == timedelta(days=1, hours=12, minutes=30, seconds=1.5)


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "2", "h2", "1h1d", "1H", "P1M", "-PT1H", "PT1H ", "P99999999999999D"]
)
def test_what_is_no_such_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a duration"):
        parse_duration(text)
