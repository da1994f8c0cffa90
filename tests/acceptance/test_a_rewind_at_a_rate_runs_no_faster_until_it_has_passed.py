"""`stream rewind --rate`: what runs again is held to it, over all processes; what comes after it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stream.config import Config
from tests.support.cli import stream
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(150)]

STARTED = "create table if not exists started (at timestamptz)"


@pytest.mark.parametrize("batch", [1, 50])
def test_what_runs_again_is_held_to_the_rate_and_what_follows_is_not(
    tmp_path: Path, environment: dict[str, str], config: Config, effects: Effects, batch: int
) -> None:
    # By the handler's clock: a run's statements reach the server together.
    note = "ctx.db.execute('insert into started values (to_timestamp(%s))', [time.time()])"
    project = effect_project(tmp_path, before=note, batch=batch)
    with (project.root / "consumers" / "testers.sql").open("a") as tables:
        tables.write(STARTED + ";\n")
    migrate(project, environment)
    publish(config, project, [(f"k{n}", n) for n in range(120)])
    members = [consume(project, environment) for _ in range(2)]
    until(lambda: effects.count() == 120, 60)
    effects.fetch("delete from effect returning 1")
    effects.fetch("delete from started returning 1")
    effects.fetch("delete from stream.ledger returning 1")

    here = replace(config, project=project.root)
    words = ("rewind", "--group", "testers", "--to-earliest", "--rate", "20/s", "--repair", "--execute")
    result = stream(here, *words)

    assert result.exit_code == 0, result.output
    assert "at most 20/s" in result.stderr
    until(lambda: effects.count() == 120, 60, lambda: str(effects.count()))
    until(lambda: effects.fetch("select 1 from stream.rewind where passed_at is not null"), 30)
    times = [at for (at,) in effects.fetch("select extract(epoch from at)::float8 from started order by at")]
    assert max(sum(start <= other < start + 1 for other in times) for start in times) <= 20

    effects.fetch("delete from started returning 1")
    publish(config, project, [(f"k{n}", n) for n in range(400)])
    until(lambda: effects.count() == 520, 60)
    [(took,)] = effects.fetch("select extract(epoch from max(at) - min(at))::float8 from started")
    assert took < 15, "at 20 a second it takes 20"
    assert [member.stop() for member in members] == [0, 0]
