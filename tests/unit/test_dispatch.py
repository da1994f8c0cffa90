"""Dispatch: how large a run may be."""

from stream.dispatch import RunSize


def test_runs_get_smaller_while_they_have_to_be_done_again_and_larger_again_after() -> None:
    size = RunSize(500)
    for expected in (250, 125, 62, 31, 16, 16):
        size.landed(size.now, redone=True, waited=0.0)
        assert size.now == expected
    size.landed(3, redone=False, waited=0.0)
    assert size.now == 16  # it says nothing about a full one
    for expected in (32, 64, 128, 256, 500, 500):
        size.landed(size.now, redone=False, waited=0.0)
        assert size.now == expected


def test_a_run_of_one_stays_one() -> None:
    size = RunSize(1)
    size.landed(1, redone=True, waited=0.0)
    assert size.now == 1
    size.landed(1, redone=False, waited=0.0)
    assert size.now == 1


def test_a_small_run_does_not_say_that_workers_wait() -> None:
    size = RunSize(500)
    size.landed(500, redone=False, waited=0.2)
    size.landed(3, redone=False, waited=0.99)
    assert size.waited == 0.2
    size.landed(500, redone=False, waited=0.9)
    assert size.waited == 0.9
