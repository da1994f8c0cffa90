"""Dispatch: how large a run may be."""

from stream.dispatch import RunSize


def test_runs_get_smaller_while_they_have_to_be_done_again_and_larger_again_after() -> None:
    size = RunSize(500)
    for expected in (250, 125, 62, 31, 16, 16):
        size.landed(size.now, redone=True)
        assert size.now == expected
    size.landed(3, redone=False)
    assert size.now == 16  # it says nothing about a full one
    for expected in (32, 64, 128, 256, 500, 500):
        size.landed(size.now, redone=False)
        assert size.now == expected


def test_a_run_of_one_stays_one() -> None:
    size = RunSize(1)
    size.landed(1, redone=True)
    assert size.now == 1
    size.landed(1, redone=False)
    assert size.now == 1
