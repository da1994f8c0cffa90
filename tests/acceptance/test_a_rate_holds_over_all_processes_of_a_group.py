"""rate="10/s" over three processes: never more than ten starts in any second, and nearly ten under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.waiting import until

pytestmark = pytest.mark.soak

STARTED = "create table if not exists started (at timestamptz)"


def test_no_second_has_more_than_the_rate_and_under_load_it_is_used(
    tmp_path: Path, environment: dict[str, str], config: Config
) -> None:
    note = "ctx.db.execute('insert into started values (clock_timestamp())')"
    project = effect_project(tmp_path, before=note, rate="10/s")
    with (project.root / "consumers" / "testers.sql").open("a") as tables:
        tables.write(STARTED + ";\n")
    migrate(project, environment)
    publish(config, project, [(f"k{n}", n) for n in range(220)])
    effects = Effects(config.database_url)
    members = [consume(project, environment) for _ in range(3)]
    until(lambda: effects.count() >= 190, 60)
    for member in members:
        member.stop()
    starts = [at for (at,) in effects.fetch("select extract(epoch from at)::float8 from started order by at")]
    most = max(sum(start <= other < start + 1 for other in starts) for start in starts)
    assert most <= 10
    loaded = starts[40:180]  # all three are there, and there is more than enough to do
    assert (len(loaded) - 1) / (loaded[-1] - loaded[0]) >= 9
    effects.close()
