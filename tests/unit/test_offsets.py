"""OffsetTracker: no offset is ever committable over an unfinished one."""

from hypothesis import given
from hypothesis import strategies as st

from stream.offsets import OffsetTracker


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
