"""Two processes with `--exit-at-end`: each applies a part, and each ends when the group has come to the end."""

from pathlib import Path

import pytest

from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.groups import publish

pytestmark = pytest.mark.long


def test_processes_of_a_group_share_its_partitions_and_end_together(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    project = effect_project(
        tmp_path / "shop", before="ctx.db.execute('select pg_sleep(0.05)')", concurrency=4
    )
    migrate(project, environment)
    publish(config, project, [(f"k{n % 20}", n) for n in range(400)])
    processes = [consume(project, environment, at_end=True) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0], [process.stderr for process in processes]

    effects.check({f"k{k}": list(range(k, 400, 20)) for k in range(20)})
    shares = dict(effects.fetch("select worker, count(*) from effect group by worker"))
    assert shares.keys() == {process.pid for process in processes}


def test_where_each_of_them_has_a_key_that_fails_each_ends_and_names_them(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    refuse = "assert not event.key.startswith('bad')"
    project = effect_project(
        tmp_path / "shop", before=refuse, after="ctx.db.execute('select pg_sleep(0.05)')"
    )
    migrate(project, environment)
    bad = [f"bad{n}" for n in range(20)]  # some in each partition
    publish(config, project, [(key, 0) for key in bad] + [(f"k{n % 20}", n) for n in range(400)])
    processes = [consume(project, environment, at_end=True) for _ in range(2)]
    assert [process.wait() for process in processes] == [6, 6], [process.stderr for process in processes]

    effects.check({f"k{k}": list(range(k, 400, 20)) for k in range(20)})
    named = [set(process.error.rpartition(": ")[2].split(", ")) for process in processes]
    assert all(named) and named[0] | named[1] == set(bad)
