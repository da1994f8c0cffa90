"""What is said of a group, from what is known of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from stream.holds import Held, holds_of
from stream.overview import GroupSummary

AT = datetime(2026, 8, 2, 14, 0, tzinfo=UTC)
FINE = GroupSummary("email", members=2, lag=5, lag_seconds=1.0, parked=0, held=0, dead=0)
FREE = {
    "halted": False, "halted_at": None, "halted_reason": None,
    "paused": False, "paused_at": None, "paused_reason": None, "paused_until": None,
    "broken": False, "breaker_open_since": None, "breaker_reason": None,
}  # fmt: skip


def test_a_group_that_works_is_fine_however_far_it_is_behind() -> None:
    assert (FINE.state, FINE.verdict, FINE.reason, FINE.commands) == ("running", "OK", None, [])


@pytest.mark.parametrize(("lag", "verdict"), [(5, "NO MEMBERS"), (0, "OK"), (None, "OK")])
def test_nobody_is_missed_where_nothing_waits(lag: int | None, verdict: str) -> None:
    group = replace(FINE, members=0, lag=lag)
    assert (group.state, group.verdict) == ("no members", verdict)
    assert group.commands == (["stream consume --group email"] if lag else [])


def test_a_hold_is_worse_than_nobody_there() -> None:
    group = replace(FINE, members=0, holds=[Held("paused", "by an operator: x", AT, AT)])
    assert (group.state, group.verdict) == ("paused until 2026-08-02T14:00:00Z", "PAUSED")
    assert group.commands == ["stream groups resume email"]


def test_of_several_holds_the_first_wins_and_the_others_are_told() -> None:
    row = FREE | {
        "halted": True, "halted_reason": "ten", "paused": True, "paused_reason": "x", "broken": True,
    }  # fmt: skip
    group = replace(FINE, holds=holds_of(row))
    assert (group.state, group.verdict) == ("halted", "HALTED")
    assert group.reason == "ten; paused too: by an operator: x; breaker open too: open"
    assert [held.by for held in holds_of(row | {"halted": False})] == ["paused", "breaker open"]
    assert holds_of(FREE) == []
