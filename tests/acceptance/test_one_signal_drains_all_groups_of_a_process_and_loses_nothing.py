"""SIGTERM in the midst of two groups: what has started is committed, and the rest is there at the next start."""

import signal
from pathlib import Path

from stream.config import Config
from tests.support.effects import Effects, committed, consume, effect_project, migrate, write_group
from tests.support.groups import publish
from tests.support.waiting import until

TOTAL = 300


def test_one_signal_drains_all_groups_of_a_process_and_loses_nothing(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    slow = "ctx.db.execute('select pg_sleep(0.1)')"
    project = effect_project(tmp_path / "shop", before=slow)
    write_group(project, "bulk", before=slow, batch=5)
    migrate(project, environment)
    publish(config, project, [(f"k{n % 30}", n) for n in range(TOTAL)])

    draining = consume(project, environment, "testers", "bulk")
    until(lambda: effects.count("testers") > 20 and effects.count("bulk") > 5, 30, lambda: draining.stderr)
    draining.send(signal.SIGTERM)
    assert draining.wait(25) == 0, draining.stderr
    for group in ("testers", "bulk"):
        assert 0 < effects.count(group) < TOTAL
        assert f"{group}: {effects.count(group)} done" in draining.stderr  # nothing was left half way
        assert sum(committed(config, group=group).values()) > 0

    for group in ("testers", "bulk"):
        write_group(project, group)
    again = consume(project, environment, "testers", "bulk", at_end=True)
    assert again.wait() == 0, again.stderr
    for group in ("testers", "bulk"):
        effects.check({f"k{k}": list(range(k, TOTAL, 30)) for k in range(30)}, group)
