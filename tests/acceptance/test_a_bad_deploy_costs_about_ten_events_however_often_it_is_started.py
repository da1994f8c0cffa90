"""Every event dies of the code. Three processes, fifty restarts by a supervisor: about ten dead letters in all, the
offset kept. With the code mended the group goes on by itself."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stream.config import Config
from tests.support.effects import Effects, committed, consume, effect_project, migrate, write_group
from tests.support.groups import publish
from tests.support.processes import Command
from tests.support.waiting import until

pytestmark = pytest.mark.soak

EVENTS, PROCESSES = 300, 3
ABOUT_TEN = range(8, 13)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("batch", "rounds"), [(1, 17), (50, 4)])
def test_a_bad_deploy_costs_about_ten_events_however_often_it_is_started(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects, batch: int, rounds: int
) -> None:
    environment = {**environment, "STREAM_TIME_SCALE": "0.02"}
    project = effect_project(tmp_path / "shop", before="raise PermanentError('deployed')", batch=batch)
    migrate(project, environment)
    publish(config, project, [(f"k{n}", n) for n in range(EVENTS)])
    processes = [consume(project, environment) for _ in range(PROCESSES)]
    for number in range(rounds):
        for process in processes:
            process.says("group.held")
        if number % 6 == 0:
            wait_for_work(effects, processes)
        assert all(process.running for process in processes)
        killed = processes[: number % 3]
        for process in processes:
            process.send(signal.SIGKILL if process in killed else signal.SIGTERM)
        for process in processes:
            assert process.wait() == (-9 if process in killed else 0), process.stderr[-3000:]
        processes = [consume(project, environment) for _ in range(PROCESSES)]

    def dead() -> int:
        return int(effects.fetch("select count(*) from stream.dead_letter")[0][0])

    until(lambda: all("group.held" in process.stderr for process in processes))
    assert dead() in ABOUT_TEN
    assert effects.count() == 0
    assert sum(committed(config).values()) <= dead()
    [(reason,)] = effects.fetch("select halted_reason from stream.group_state")
    assert "in a row failed for good" in reason

    write_group(project, batch=batch)
    for process in processes:
        assert process.stop() == 0
    processes = [consume(project, environment) for _ in range(PROCESSES)]
    until(lambda: effects.count() + dead() >= EVENTS, 60, lambda: processes[0].stderr[-3000:])
    letters = [key.decode() for (key,) in effects.fetch("select key from stream.dead_letter")]
    assert len(letters) in ABOUT_TEN
    effects.check({f"k{n}": [n] for n in range(EVENTS) if f"k{n}" not in letters})
    for process in processes:
        assert process.stop() == 0


def wait_for_work(effects: Effects, processes: list[Command]) -> None:
    """Until every partition is with one of these processes."""
    pids = {process.pid for process in processes}

    def shared_out() -> bool:
        rows = effects.fetch("select worker from stream.assignment where released_at is null")
        return len(rows) == 8 and {int(worker.split("-")[-2]) for (worker,) in rows} <= pids

    until(shared_out, 40, lambda: processes[0].stderr[-3000:])
