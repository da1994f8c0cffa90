"""What of a group's topics forbids to forget: the pure part of pruning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from stream.pruning import CLOCKS_DIFFER, Logs, still_read

NOW = datetime(2026, 8, 2, 12, tzinfo=UTC)
BEFORE = NOW - timedelta(days=90)
THINGS = frozenset({"things"})


def need(
    oldest: datetime | None, *, ids: dict[str, str] | None = None, met: dict[str, str] | None = None
) -> str:
    logs = Logs({"things": "id"} if ids is None else ids, {("things", 0): None, ("things", 1): oldest})
    found = still_read("testers", THINGS, {"things": "id"} if met is None else met, logs, BEFORE, NOW)
    return "" if found is None else found.reason


@pytest.mark.parametrize("age", [timedelta(0), timedelta(days=89)])
def test_rows_are_free_where_every_log_begins_later(age: timedelta) -> None:
    assert need(NOW - age) == ""


def test_rows_are_free_where_no_record_is_left() -> None:
    assert need(None) == ""


@pytest.mark.parametrize("time", [BEFORE, BEFORE - timedelta(days=1), BEFORE + CLOCKS_DIFFER / 2])
def test_rows_are_needed_while_a_record_may_be_older(time: datetime) -> None:
    assert need(time).startswith("things[1] holds records since 2026-05-0")


def test_the_command_names_an_age_that_is_free() -> None:
    logs = Logs({"things": "id"}, {("things", 0): BEFORE})
    found = still_read("testers", THINGS, {}, logs, BEFORE, NOW)
    assert found is not None
    assert found.command == "stream ledger prune --group testers --older-than 91d"
    assert still_read("testers", THINGS, {}, logs, NOW - timedelta(days=91), NOW) is None


@pytest.mark.parametrize(
    "ids, met, reason",
    [
        ({}, {"things": "id"}, "topic things is not on this cluster"),
        ({"things": "other"}, {"things": "id"}, "topic things is not the one that the group has read"),
    ],
)
def test_rows_are_needed_where_it_may_be_another_cluster(
    ids: dict[str, str], met: dict[str, str], reason: str
) -> None:
    assert need(None, ids=ids, met=met) == reason


def test_a_topic_that_the_group_left_and_that_is_gone_needs_nothing() -> None:
    logs = Logs({"things": "id"}, {})
    assert still_read("testers", THINGS, {"things": "id", "left": "gone"}, logs, BEFORE, NOW) is None


def test_rows_are_needed_where_nobody_knows_the_topics() -> None:
    found = still_read("testers", frozenset(), {}, Logs({}, {}), BEFORE, NOW)
    assert found is not None
    assert found.command == "stream groups list"
