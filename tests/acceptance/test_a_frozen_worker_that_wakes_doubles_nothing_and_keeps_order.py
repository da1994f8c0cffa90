"""A worker is stopped (SIGSTOP) beyond its session and continued: what it has in its hands is another's by now."""

import signal
from pathlib import Path

import psutil
import pytest

from stream.config import Config
from tests.support.effects import Effects, Load, consume, effect_project, migrate, shorten_session
from tests.support.waiting import until

pytestmark = pytest.mark.soak


@pytest.mark.parametrize(
    ("step", "nth", "batch"),
    [
        ("consume.before_commit", 60, 1),  # it holds claims that the other worker waits for
        ("consume.after_commit", 10, 10),  # effects are committed, offsets not
    ],
)
def test_a_frozen_worker_that_wakes_doubles_nothing_and_keeps_order(
    tmp_path: Path,
    config: Config,
    environment: dict[str, str],
    effects: Effects,
    step: str,
    nth: int,
    batch: int,
) -> None:
    # The database takes a frozen transaction's locks after 2 x timeout + 10 s: too long to wait for here.
    hasten = "ctx.db.execute(\"set local idle_in_transaction_session_timeout = '3s'\")"
    project = effect_project(tmp_path / "shop", batch=batch, before=hasten)
    migrate(project, environment)

    def applied_by(pid: int) -> int:
        return int(effects.fetch("select count(*) from effect where worker = %s", pid)[0][0])

    def owned_by(pid: int) -> int:
        query = (
            "select count(*) from stream.assignment"
            " where worker like %s and released_at is null and topic = 'things'"
        )
        return int(effects.fetch(query, f"%-{pid}-%")[0][0])

    with Load(config, project) as load:
        sleeper = consume(project, environment, failpoints=f"{step}=stop@{nth}")
        sleeper.says("partitions.assigned")
        shorten_session(config)
        other = consume(project, environment)
        until(lambda: psutil.Process(sleeper.pid).status() == psutil.STATUS_STOPPED)

        until(lambda: owned_by(other.pid) == 4, 20, "the other worker gets all partitions")
        before = applied_by(other.pid)
        until(lambda: applied_by(other.pid) > before + 50)
        sleeper.send(signal.SIGCONT)
        sleeper.says("partitions.lost")
        before = applied_by(sleeper.pid)
        until(lambda: applied_by(sleeper.pid) > before + 20, 30, "the one that woke works again")

    until(lambda: effects.count() >= load.count)
    assert (sleeper.stop(), other.stop()) == (0, 0)
    effects.check(load.published)
