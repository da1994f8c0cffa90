"""Rebalances under load: a second process joins, leaves, and one is killed. Its keys go on within ten seconds.

The first of them, that is: the others have an event only when chance gives them one, and wait behind the backlog of
the seconds in which the dead member still owned them.
"""

from pathlib import Path

import pytest

from stream.config import Config
from tests.support.effects import Effects, Load, consume, effect_project, migrate
from tests.support.processes import Command
from tests.support.waiting import until

pytestmark = pytest.mark.soak

LAST_OF_EACH_KEY = "select distinct on (key) key, worker from effect order by key, seq desc"


def test_members_that_come_go_and_die_double_nothing_and_keep_order(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    # A burst and slow handlers: the first two rebalances meet much that was read and has not started.
    project = effect_project(
        tmp_path / "shop", concurrency=2, before='ctx.db.execute("select pg_sleep(0.02)")'
    )
    migrate(project, environment)

    def works(member: Command) -> None:
        [(before,)] = effects.fetch("select coalesce(max(seq), 0) from effect")
        query = "select count(*) from effect where worker = %s and seq > %s"
        until(lambda: effects.fetch(query, member.pid, before) > [(50,)], 30, lambda: member.stderr)

    def owners() -> dict[str, int]:
        return dict(effects.fetch(LAST_OF_EACH_KEY))

    with Load(config, project, burst=500, pause_s=0.03) as load:
        first = consume(project, environment)
        works(first)

        second = consume(project, environment)
        works(second)
        works(first)
        assert second.stop() == 0, second.stderr
        works(first)

        third = consume(project, environment)
        works(third)
        until(lambda: effects.count() > load.count - 20, 30, "the burst is over")
        third.kill()
        orphaned = {key for key, owner in owners().items() if owner == third.pid}
        assert orphaned
        until(
            lambda: any(owners()[key] == first.pid for key in orphaned), 10, "the killed member's keys go on"
        )
        until(lambda: all(owners()[key] == first.pid for key in orphaned), 30, "all of them go on")

    until(lambda: effects.count() >= load.count)
    assert first.stop() == 0, first.stderr
    effects.check(load.published)
