"""Shards: each relay's fair share, takeover, and handing over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream import shards
from stream.config import Config
from stream.floors import SHARDS
from stream.relay import Relay
from stream.shards import ShardSession
from tests.support.small import make_project
from tests.support.truth import Truth, first_occurrences
from tests.support.waiting import until

Conn = psycopg.Connection[Any]


@contextmanager
def sessions(url: str) -> Iterator[list[ShardSession]]:
    """A list to which members are added; they are closed at the end."""
    opened: list[ShardSession] = []
    try:
        yield opened
    finally:
        for session in opened:
            session.close()


def refresh(*members: ShardSession) -> None:
    """One round: each counts the others, gives up and takes."""
    for member in members:
        member._last_refresh = float("-inf")
        member.refresh(lambda: set(), lambda shards: None)


def shares(members: list[ShardSession]) -> list[int]:
    owned = [member.owned for member in members]
    assert len(set().union(*owned)) == sum(map(len, owned)), "a shard has one owner"
    return sorted(map(len, owned))


def test_one_two_and_three_relays_have_fair_shares_and_one_that_ends_leaves_its_own(
    database_url: str,
) -> None:
    with sessions(database_url) as members:
        for expected in ([64], [32, 32], [20, 22, 22]):
            members.append(ShardSession.open(database_url))
            for _ in range(4):
                refresh(*members)
            assert shares(members) == expected
        members.pop(0).close()
        until(lambda: refresh(*members) or shares(members) == [32, 32], 5, "the others take over")


def test_it_asks_at_most_once_a_second(database_url: str) -> None:
    with sessions(database_url) as members:
        members.append(ShardSession.open(database_url))
        assert members[0].refresh(lambda: set(), lambda shards: None)
        members.append(ShardSession.open(database_url))
        assert not members[0].refresh(lambda: set(), lambda shards: None)
        assert len(members[0].owned) == SHARDS


def test_a_shard_with_rows_in_memory_is_read_no_more_and_given_up_once_they_are_gone_or_after_a_while(
    database_url: str,
) -> None:
    dropped: set[int] = set()
    with sessions(database_url) as members:
        members.append(ShardSession.open(database_url))
        [first] = members
        refresh(first)
        members.append(ShardSession.open(database_url))
        everything = set(range(SHARDS))
        first._last_refresh = float("-inf")
        assert first.refresh(lambda: everything, dropped.update)
        assert len(first.owned) == 32
        refresh(members[1])
        assert members[1].owned == set(), "what the first has in memory is its own still"

        half = set(sorted(everything - first.owned)[:16])
        first.refresh(lambda: half, dropped.update)
        refresh(members[1])
        assert members[1].owned == everything - first.owned - half
        assert dropped == members[1].owned

        first._leaving = dict.fromkeys(first._leaving, time.monotonic())  # the while is over
        until(lambda: first.refresh(lambda: everything, dropped.update) or not first._leaving, 5)
        refresh(members[1])
        assert members[1].owned == everything - first.owned
        assert dropped == members[1].owned


def test_a_shard_on_its_way_out_stays_when_the_other_relay_is_gone_again(database_url: str) -> None:
    with sessions(database_url) as members:
        members.append(ShardSession.open(database_url))
        [first] = members
        refresh(first)
        second = ShardSession.open(database_url)
        first._last_refresh = float("-inf")
        first.refresh(lambda: set(range(SHARDS)), lambda shards: None)
        assert len(first.owned) == 32
        second.close()
        dropped: set[int] = set()

        def refreshed() -> bool:
            first._last_refresh = float("-inf")
            first.refresh(lambda: set(range(SHARDS)), dropped.update)
            return len(first.owned) == SHARDS

        until(refreshed, 5)
        assert not dropped


def test_a_session_that_is_not_touched_loses_its_shards(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(shards.SESSION_SETTINGS, "idle_session_timeout", "300ms")
    with sessions(database_url) as members:
        members.append(ShardSession.open(database_url))
        refresh(members[0])
        frozen = members.pop()
        members.append(ShardSession.open(database_url))
        until(lambda: refresh(*members) or len(members[0].owned) == SHARDS, 5)
        with pytest.raises(psycopg.Error):
            refresh(frozen)
        frozen.close()


@pytest.mark.parametrize(
    "setting", ["idle_session_timeout", "idle_in_transaction_session_timeout", "tcp_user_timeout"]
)
def test_all_three_time_limits_are_set(database_url: str, setting: str) -> None:
    """Without any one of them a frozen relay keeps its shards for ever, in some state."""
    with sessions(database_url) as members:
        members.append(ShardSession.open(database_url))
        [(value,)] = members[0].connection.execute("select current_setting(%s)", [setting])
        assert value in ("5s", "5000")


def test_once_waits_for_the_rows_of_a_frozen_relays_shards(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = Truth(config, make_project(tmp_path / "small"))
    truth.commit(*(f"key-{n}" for n in range(20)))
    with sessions(config.database_url) as members:
        with monkeypatch.context() as patch:
            patch.setitem(shards.SESSION_SETTINGS, "idle_session_timeout", "1s")
            members.append(ShardSession.open(config.database_url))
        refresh(members[0])
        assert Relay(config, truth.project).run_until_empty().published == 20
    assert truth.check() == 0


def test_a_relay_under_load_hands_half_over_to_a_second_and_doubles_nothing(
    config: Config, tmp_path: Path, conn: Conn
) -> None:
    """It has rows in memory of every shard all the time: waiting for an idle moment would be for ever."""
    truth = Truth(config, make_project(tmp_path / "small"))
    keys = [f"key-{n}" for n in range(300)]
    appended = 0

    def append(rounds: int) -> None:
        nonlocal appended
        events = [{"type": "Happened", "key": key, "data": {"n": n}} for n in range(rounds) for key in keys]
        truth.outbox.append_many(conn, events)
        conn.commit()
        appended += len(events)

    append(10)
    relays = [Relay(config, truth.project)]
    relays[0].run_once()
    relays.append(Relay(config, truth.project))
    published = [0, 0]
    try:
        while sum(published) < appended or not min(published):
            if not min(published):
                append(2)  # the load goes on until the second has its share
            for n, relay in enumerate(relays):
                published[n] += relay.run_once().published
    finally:
        for relay in relays:
            relay.drain(5)
    found = first_occurrences(config, "things")
    assert (sum(map(len, found.ids.values())), found.doubles) == (appended, 0)
