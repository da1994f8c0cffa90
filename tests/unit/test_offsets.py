"""OffsetTracker: no offset is ever committable over an unfinished one."""

from hypothesis import given
from hypothesis import strategies as st

from stream.offsets import OffsetTracker, Progress


@given(st.data())
def test_no_offset_is_committable_over_an_unfinished_one_and_all_finished_reaches_the_last(
    data: st.DataObject,
) -> None:
    start = data.draw(st.integers(0, 50))
    gaps = data.draw(st.lists(st.integers(1, 4), max_size=30))
    tracker = OffsetTracker(start)
    unfinished: set[int] = set()
    finished: set[int] = set()
    next_offset = start
    before = start

    def check() -> None:
        nonlocal before
        committable = tracker.committable()
        assert all(offset >= committable for offset in unfinished)
        assert committable >= before, "it went backwards"
        assert committable == (min(unfinished) if unfinished else tracker.position)
        before = committable

    for gap in gaps:
        next_offset += gap
        assert tracker.received(next_offset)
        unfinished.add(next_offset)
        check()
        for offset in data.draw(st.lists(st.sampled_from(sorted(unfinished | finished)), max_size=3)):
            tracker.finished(offset)
            unfinished.discard(offset)
            finished.add(offset)
            check()
    for offset in data.draw(st.permutations(sorted(unfinished))):
        tracker.finished(offset)
        unfinished.discard(offset)
        check()
    assert tracker.committable() == (next_offset + 1 if gaps else start)


def test_an_offset_that_came_before_is_not_received_again() -> None:
    tracker = OffsetTracker(5)
    assert tracker.received(7)
    assert not tracker.received(7)
    assert not tracker.received(3)


def test_finishing_what_was_never_received_changes_nothing() -> None:
    tracker = OffsetTracker(0)
    tracker.received(0)
    tracker.received(1)
    tracker.finished(99)
    assert tracker.committable() == 0
    tracker.finished(0)
    assert tracker.committable() == 1


def test_the_end_of_the_log_is_passed_when_only_markers_are_left() -> None:
    tracker = OffsetTracker(0)
    tracker.received(0)
    tracker.passed(3)
    assert tracker.committable() == 0
    tracker.finished(0)
    assert tracker.committable() == 3


P = ("orders", 3)


def test_what_was_taken_before_a_partition_went_and_came_back_does_not_count_any_more() -> None:
    progress = Progress()
    progress.start({P: 0})
    progress.received(P, 0)
    taken = progress.generation
    assert progress.waits_for(P, taken)
    progress.start({("orders", 4): 0})  # another one came: ours is as it was
    assert progress.waits_for(P, taken)
    progress.forget([P])
    assert not progress.waits_for(P, taken)
    progress.start({P: 0})
    assert not progress.waits_for(P, taken)
    assert progress.waits_for(P, progress.generation)


def test_only_offsets_above_those_the_broker_has_are_worth_committing() -> None:
    progress = Progress()
    progress.start({P: 5, ("orders", 4): 0})
    assert progress.committable() == {}
    for offset in (5, 6):
        progress.received(P, offset)
        progress.finished(P, offset)
    assert progress.committable() == {P: 7}
    progress.committed({P: 7, ("orders", 9): 1})
    progress.committed({P: 6})  # an older answer comes late
    assert progress.committable() == {}


def test_records_of_partitions_that_are_not_ours_are_not_received() -> None:
    progress = Progress()
    assert not progress.received(P, 0)
    assert progress.position(P) is None
