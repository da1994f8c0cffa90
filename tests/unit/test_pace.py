"""Which rate holds for the runs of a process: history's, for as long as it reads any."""

from __future__ import annotations

from threading import Event

import pytest

from stream.offsets import Progress
from stream.pace import Pace, Paces


def paces(rate: float | None, catch_up_rate: float) -> Paces:
    made = Paces(*(Pace("", "testers", each, Event()) for each in (rate, catch_up_rate)))
    made.history = {("things", 0): 2, ("things", 1): 0}
    return made


@pytest.mark.parametrize("rate", [None, 8.0])
def test_the_rate_of_history_holds_until_all_of_it_is_finished(rate: float | None) -> None:
    pace, progress = paces(rate, 5.0), Progress()
    assert pace.rate == 5.0  # nothing is known yet
    progress.start({("things", 0): 0, ("things", 1): 0})
    for offset in range(3):
        progress.received(("things", 0), offset)
    progress.finished(("things", 0), 1)
    pace.look(progress)
    assert pace.rate == 5.0
    progress.finished(("things", 0), 0)
    pace.look(progress)
    assert pace.rate == rate


def test_the_rate_of_history_holds_again_for_a_partition_that_comes_with_some() -> None:
    pace, progress = paces(None, 5.0), Progress()
    progress.start({("things", 1): 0})
    pace.look(progress)
    assert pace.rate is None
    progress.start({("things", 0): 1})
    pace.look(progress)
    assert pace.rate == 5.0


def test_a_rewinds_rate_holds_where_it_is_lower_and_where_no_history_is_left() -> None:
    pace, progress = paces(None, 5.0), Progress()
    progress.start({("things", 0): 0})
    pace.look(progress)
    pace.limit(2.0)
    assert pace.rate == 2.0
    progress.start({("things", 0): 2})
    pace.look(progress)
    assert pace.rate == 2.0
    pace.limit(None)
    assert pace.rate is None
