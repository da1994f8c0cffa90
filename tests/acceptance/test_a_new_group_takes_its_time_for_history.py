"""catch_up_rate: history, and nothing else, is worked off no faster than said, over all processes and every restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream.config import Config
from tests.support.effects import Effects, committed, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.waiting import until

pytestmark = pytest.mark.long

STARTED = "create table if not exists started (at float8, n bigint)"
# The handler's own clock: the statements of a run reach the server some at a time.
NOTE = "ctx.db.execute('insert into started values (%s, %s)', [time.time(), event.data['n']])"


@pytest.mark.parametrize("batch", [1, 100])
def test_history_is_worked_off_at_its_rate_and_what_comes_later_at_once(
    batch: int, tmp_path: Path, environment: dict[str, str], config: Config, effects: Effects
) -> None:
    project = effect_project(tmp_path, before=NOTE, catch_up_rate="20/s", batch=batch)
    with (project.root / "consumers" / "testers.sql").open("a") as tables:
        tables.write(STARTED + ";\n")
    migrate(project, environment)
    publish(config, project, [(f"k{n}", n) for n in range(200)])
    first = consume(project, environment)
    until(lambda: effects.count() >= 40, 60)
    second = consume(project, environment)
    first.stop()  # what is history does not begin anew
    third = consume(project, environment)
    until(lambda: effects.count() == 200, 60, lambda: third.stderr)
    starts = [at for (at,) in effects.fetch("select at from started order by at")]
    most = max(sum(start <= other < start + 1 for other in starts) for start in starts)
    assert most <= 20
    until(lambda: sum(committed(config).values()) == 200)

    publish(config, project, [(f"k{n}", n) for n in range(200, 1200)])
    until(lambda: effects.count() == 1200, 60)
    second.stop()
    third.stop()
    [(seconds,)] = effects.fetch("select max(at) - min(at) from started where n >= 200")
    assert seconds < 25  # at the rate of history: 50
    [(together,)] = effects.fetch(
        "select max(n) from (select count(*) as n from effect where n >= 200 group by xmin::text) of_transactions"
    )
    assert together > 20 or batch == 1  # transactions are as large as ever, too
    assert effects.by_key() == {f"k{n}": [n] for n in range(1200)}
