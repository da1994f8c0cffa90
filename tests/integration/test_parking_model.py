"""Ordered retry under a random model: members that lose ownership and go on, deaths, doubled and mixed retries."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.context import HandlerConnection
from stream.parking import ParkedLanes, Parking
from stream.project import Project
from stream.work import Work
from tests.support.chaos import Chaos
from tests.support.small import make_project

# More seeds: STREAM_TEST_SEEDS=200.
SEEDS = range(int(os.environ.get("STREAM_TEST_SEEDS", "4")))


@pytest.fixture
def small(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture
def play(small: Project, new_database: Callable[[], str]) -> Callable[..., list[str]]:
    def run(seed: int, **options: Any) -> list[str]:
        url = new_database()
        with psycopg.connect(url) as conn:
            conn.execute(
                "create table effect"
                " (seq bigint generated always as identity, event_id uuid, key text,"
                " n int not null, epoch int not null)"
            )
        chaos = Chaos(small, url, seed, **options)
        chaos.run(1.0)
        return chaos.verdict()

    return run


class Slow(Parking):
    """Takes its time between what it writes and the commit: that is where others must be kept out."""

    def follow(self, conn: HandlerConnection, works: Sequence[Work]) -> None:
        super().follow(conn, works)
        self._pause(conn, works)

    def leave_live_heads(self, conn: HandlerConnection, lanes: Collection[int]) -> None:
        super().leave_live_heads(conn, lanes)
        self._pause(conn, lanes)

    @staticmethod
    def _pause(conn: HandlerConnection, written: Collection[object]) -> None:
        if written:
            conn.execute("select pg_sleep(0.01)")


class WithoutLock(Slow):
    """Leaves out the lock of the lanes."""

    def lock(self, conn: HandlerConnection, lanes: Iterable[int]) -> None:
        pass

    def try_lock(self, conn: HandlerConnection, lanes: Iterable[int]) -> Any:
        return [(lane,) for lane in lanes]


class WithoutLook(Parking):
    """Leaves out the look at what is parked: nothing ever follows."""

    def look(self, conn: HandlerConnection, lanes: set[int]) -> ParkedLanes:
        return ParkedLanes(set(), ())


@pytest.mark.parametrize("parking_class", [Parking, Slow])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_effect_is_lost_doubled_or_out_of_order_and_nothing_stays_parked(
    play, seed, parking_class
) -> None:
    assert play(seed, parking_class=parking_class) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_ranges_run_again_meanwhile_are_applied_once_more_each_and_in_order(play, seed) -> None:
    assert play(seed, reapplying=True) == []


@pytest.mark.parametrize("parking_class", [WithoutLock, WithoutLook])
def test_the_model_finds_what_is_left_out(play, parking_class) -> None:
    assert any(play(seed, parking_class=parking_class) for seed in range(20))
