"""Broker and database die and come back, as an orchestrator sees it: alive all the time, not ready meanwhile."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from stream import stack
from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.processes import Command
from tests.support.scrapes import address_of, health, scrape
from tests.support.waiting import until

pytestmark = pytest.mark.long


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("server", "number", "dependency"),
    [("kafka", signal.SIGKILL, "broker"), ("postgres", signal.SIGQUIT, "database")],
)
def test_an_outage_makes_nobody_ready_and_ends_nobody(
    tmp_path: Path,
    config: Config,
    environment: dict[str, str],
    effects: Effects,
    stack_data: Path,
    server: str,
    number: signal.Signals,
    dependency: str,
) -> None:
    data = stack_data / ".stream"
    environment = {**environment, "STREAM_METRICS_PORT": "0"}
    project = effect_project(tmp_path / "shop")
    migrate(project, environment)
    processes = [Command("relay", env=environment, cwd=project.root), consume(project, environment)]
    bases = [address_of(process) for process in processes]

    def ready() -> list[bool]:
        found = [health(base, "/readyz") for base in bases]
        assert all((status == 200) == answer["ok"] for status, answer in found)
        return [answer["ok"] for _, answer in found]

    def named(base: str) -> bool:
        reasons = health(base, "/readyz")[1]["reasons"]
        assert config.database_url not in str(reasons)
        return any(reason.startswith(f"{dependency}: ") for reason in reasons)

    def state() -> str:
        return f"{[health(base, '/readyz') for base in bases]}\n{processes[1].stderr[-2000:]}"

    publish(config, project, [("k", 1)])
    until(lambda: effects.count() == 1)
    until(lambda: ready() == [True, True], 30, state)

    os.kill(stack.processes(data)[server], number)
    try:
        until(lambda: ready() == [False, False], 40, state)
        for base in bases:
            assert health(base, "/livez") == (200, {"ok": True, "reasons": []})
            until(partial(named, base), 30, state)
            assert scrape(base).value("stream_dependency_up", dependency=dependency) == 0
            if dependency == "broker":  # what was read before it died is not shown as if it were read now
                assert scrape(base).value("stream_consumer_lag_records") is None
    finally:
        stack.up(data)
    until(lambda: ready() == [True, True], 60, state)
    publish(config, project, [("k", 2)])
    until(lambda: effects.count() == 2, 40, state)
    assert [process.stop() for process in processes] == [0, 0]
