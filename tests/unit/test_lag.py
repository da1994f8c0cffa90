"""How far a group is behind, from its offsets and the log's."""

from __future__ import annotations

from stream.kafka.lag import PartitionLag, behind

P = ("orders", 0)


def test_the_lag_is_what_lies_between_the_committed_offset_and_the_end() -> None:
    assert behind(P, {P: 4}, 0, 10) == PartitionLag(4, 10, 6)
    assert behind(P, {P: 10}, 0, 10) == PartitionLag(10, 10, 0)


def test_what_retention_took_is_not_counted() -> None:
    assert behind(P, {P: 4}, 7, 10) == PartitionLag(4, 10, 3)


def test_an_offset_beyond_the_end_is_no_lag() -> None:
    assert behind(P, {P: 12}, 0, 10).lag == 0


def test_where_nothing_was_committed_the_lag_is_unknown() -> None:
    assert behind(P, {}, 2, 10) == PartitionLag(None, 10)
    assert behind(P, {("payments", 0): 3}, 2, 10) == PartitionLag(None, 10)


def test_a_partition_that_came_later_is_read_from_its_beginning() -> None:
    assert behind(P, {("orders", 1): 3}, 2, 10) == PartitionLag(None, 10, 8)
