"""What is said of a group, from what is known of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from stream.holds import Held, holds_of
from stream.kafka.lag import NextRecord, PartitionLag
from stream.parked import ParkedKey
from stream.trend import Trend
from stream.verdicts import (
    GroupSummary,
    Handling,
    History,
    Oldest,
    blocker,
    group_trend,
    history,
    oldest,
    stalled,
    topic_problem,
)

AT = datetime(2026, 8, 2, 14, 0, tzinfo=UTC)
FINE = GroupSummary("email", members=2, lag=5, lag_seconds=1.0, parked=0, held=0, dead=0)
FREE = {
    "halted": False, "halted_at": None, "halted_reason": None,
    "paused": False, "paused_at": None, "paused_reason": None, "paused_until": None,
    "broken": False, "breaker_open_since": None, "breaker_reason": None,
}  # fmt: skip


def test_a_group_that_works_is_fine_however_far_it_is_behind() -> None:
    assert (FINE.state, FINE.verdict, FINE.reason, FINE.commands) == ("running", "OK", None, [])


@pytest.mark.parametrize(("lag", "verdict"), [(5, "STOPPED"), (0, "OK"), (None, "OK")])
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


@pytest.mark.parametrize(
    ("changes", "verdict", "command"),
    [
        ({"stalled": "things[0] stands"}, "STALLED", "stream groups describe email"),
        ({"behind": "things[0]: 9 come"}, "FALLING BEHIND", "stream groups describe email"),
        ({"held": 1, "held_key": "7"}, "KEYS HELD", "stream parked list --group email"),
        ({"held": 1, "stalled": "x", "behind": "y"}, "STALLED", "stream groups describe email"),
        ({"held": 1, "behind": "y"}, "KEYS HELD", "stream parked list --group email"),
        ({"members": 0, "stalled": "x"}, "STOPPED", "stream consume --group email"),
        ({"problem": topic_problem("email", {"things": "a"}, {})}, "TOPIC MISSING", "stream migrate"),
        (
            {"problem": topic_problem("email", {"things": "a"}, {"things": "b"}), "members": 0},
            "TOPIC RECREATED",
            "stream groups adopt email --topic things --to-earliest",
        ),
    ],
)
def test_the_worst_is_said_first(changes: dict[str, Any], verdict: str, command: str) -> None:
    group = replace(FINE, **changes)
    assert (group.verdict, group.commands) == (verdict, [command])
    assert group.reason


def test_held_keys_are_counted_and_the_one_that_waits_longest_named() -> None:
    assert replace(FINE, held=1, held_key="536365").reason == "1 key waits for an operator, 536365 longest"
    assert replace(FINE, held=2, held_key=None).reason == "2 keys wait for an operator, (no key) longest"


P0, P1 = ("things", 0), ("things", 1)
NEXT = NextRecord(17, b"a", UUID(int=1), AT)
BEHIND = PartitionLag(17, 40, 23, 5.0, NEXT)
THERE = PartitionLag(40, 40, 0, 0.0)
HELD = [Held("paused", "by an operator: x", AT)]


def parked_key(**changes: Any) -> ParkedKey:
    known = ParkedKey(
        "email", "things", b"bad", 0, 3, UUID(int=2), 0, "Happened",
        held=False, followers=0, attempts=2, since=AT, last_failed_at=AT, due_at=AT,
        error_class="Boom", error_message="no", letter=None,
    )  # fmt: skip
    return replace(known, **changes)


def slow(partition: int = 0, offset: int = 17) -> Handling:
    return Handling("w", "things", partition, offset, "slow", str(UUID(int=3)), AT)


@pytest.mark.parametrize(
    ("one", "keys", "owner", "handling", "holds", "by", "why"),
    [
        (BEHIND, [], "w", [], [], None, None),
        (THERE, [], None, [], HELD, None, None),
        (BEHIND, [], "w", [slow()], [], "slow", f"event {UUID(int=3)} in its handler since 2026-"),
        (BEHIND, [], "w", [slow(1, 9)], [], "slow", f"event {UUID(int=3)}, of things[1], in its handler"),
        (THERE, [], "w", [slow()], [], None, None),
        (BEHIND, [parked_key()], "w", [], HELD, "bad", "parked since 2026-08-02T14:00:00.000Z, try 3 at "),
        (THERE, [parked_key(), parked_key(held=True, key=None)], "w", [], [], "(no key)", "held since 2026-"),
        (BEHIND, [], "w", [], HELD, "(paused)", "by an operator: x"),
        (BEHIND, [], None, [], [], "(no member)", "no process reads this partition"),
    ],
)
def test_what_blocks_a_partition(
    one: PartitionLag,
    keys: list[ParkedKey],
    owner: str | None,
    handling: list[Handling],
    holds: list[Held],
    by: str | None,
    why: str | None,
) -> None:
    found = blocker(P0, one, keys, owner, handling, holds)
    assert (found and found.by) == by
    assert found is None or found.why.startswith(why or "")


def test_the_oldest_unfinished_record_may_be_parked() -> None:
    first = oldest(BEHIND, [parked_key(offset=30), parked_key(offset=5)])
    assert first is not None
    assert (first.offset, first.key) == (5, "bad")
    assert oldest(BEHIND, [parked_key(offset=30)]) == Oldest(17, "a", UUID(int=1), AT)
    assert oldest(THERE, []) is None


STANDS, MOVES = Trend(1.0, 0.0, None, "stalled"), Trend(1.0, 5.0, 9.0)


def test_a_partition_whose_turn_has_not_come_is_not_stalled() -> None:
    trends = {P0: STANDS, P1: MOVES}
    assert stalled(trends, {P0: "w", P1: "w"}, []) == set()
    assert stalled(trends, {P0: "w", P1: "w"}, [slow()]) == {P0}
    assert stalled(trends, {P0: "w", P1: "v"}, []) == {P0}
    assert stalled({P0: STANDS, P1: STANDS}, {P0: "w", P1: "w"}, []) == {P0, P1}


def test_a_group_is_drained_when_its_last_process_is() -> None:
    trends = {P0: Trend(1.0, 11.0), P1: Trend(0.0, 40.0)}
    lags = {P0: 1000, P1: 500}
    assert group_trend(trends, lags, {P0: "w", P1: "v"}) == Trend(1.0, 51.0, 100.0)
    assert group_trend(trends, lags, {P0: "w", P1: "w"}) == Trend(1.0, 51.0, 30.0)
    assert group_trend({**trends, P1: Trend(5.0, 5.0)}, lags, {P0: "w", P1: "v"}).eta_seconds is None
    assert group_trend({P0: Trend(), P1: Trend()}, {P0: 0, P1: 0}, {}).eta_seconds == 0.0
    assert group_trend({}, {}, {}) == Trend()


def test_history_left_is_what_was_there_at_the_first_start_and_can_still_be_read() -> None:
    ends = {("t", 0): 100, ("t", 1): 50, ("t", 2): 10}
    of_group = {
        ("t", 0): PartitionLag(40, 120, 80),
        ("t", 1): PartitionLag(50, 60, 10),  # past its history
        ("t", 2): PartitionLag(None, 10),  # nothing committed in its topic
        ("t", 3): PartitionLag(None, 5, 5),  # came later
    }
    assert history(ends, of_group, 20.0) == History(60, 20.0)
    # retention took all before offset 90
    assert history(ends, of_group | {("t", 0): PartitionLag(40, 120, 30)}, None) == History(10, None)
    assert history(ends, {("t", 1): of_group["t", 1]}, 20.0) is None
