"""Two workers: one has the partitions of some keys, the other the retries of the same keys. Their order holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.processes import Command
from tests.support.topics import create_topic, read_all
from tests.support.waiting import until

pytestmark = pytest.mark.soak

ROUNDS, EACH = 12, 5
# What is published first succeeds: it is there to see which key is in which partition. A try that is made again,
# because of its neighbours in a transaction, fails again.
FAIL = """\
if event.data["n"] and random.Random(f"{event.id} {ctx.attempt}").random() < 0.2:
        raise ValueError("not now")"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("batch", [1, 10])
def test_order_holds_with_the_retries_at_another_worker(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects, batch: int
) -> None:
    environment = {**environment, "STREAM_TIME_SCALE": "0.1"}
    create_topic(config, "testers.retry", 1)  # all retries are with one worker then
    project = effect_project(tmp_path / "shop", after=FAIL, batch=batch, concurrency=4, attempts=1000)
    migrate(project, environment)
    relay = Command("relay", env=environment, cwd=project.root)
    workers = [consume(project, environment) for _ in range(2)]
    until(lambda: shared_out(effects), 40, lambda: workers[0].stderr + workers[1].stderr)
    owners = assigned(effects)
    far = {partition for (topic, partition), pid in owners.items() if pid != owners["testers.retry", 0]}

    publish(config, project, [(f"k{n}", 0) for n in range(40)])
    expected = {f"k{n}": [0] for n in range(40)}
    keys = [(m.key() or b"").decode() for m in read_all(config, "things") if m.partition() in far][:12]
    for first in range(1, ROUNDS * EACH, EACH):
        numbers = range(first, first + EACH)
        publish(config, project, [(key, n) for n in numbers for key in keys])
        for key in keys:
            expected[key] += numbers
    total = sum(map(len, expected.values()))
    until(lambda: effects.count() >= total, 60, lambda: workers[0].stderr[-2000:] + workers[1].stderr[-2000:])
    until(lambda: effects.fetch("select count(*) from stream.parked") == [(0,)])
    effects.check(expected)
    assert assigned(effects) == owners  # nothing has moved
    pids = effects.fetch("select distinct worker from effect where n > 0 and key = any(%s)", keys)
    assert {pid for (pid,) in pids} == {worker.pid for worker in workers}, "both have worked on the same keys"
    for worker in workers:
        assert "retries.overdue" not in worker.stderr, "no key was left with nobody to wake it"
    for command in (*workers, relay):
        assert command.stop() == 0


def assigned(effects: Effects) -> dict[tuple[str, int], int]:
    """Who has which partition, by process id."""
    rows = effects.fetch("select topic, partition, worker from stream.assignment where released_at is null")
    return {(topic, partition): int(worker.split("-")[-2]) for topic, partition, worker in rows}


def shared_out(effects: Effects) -> bool:
    owners = assigned(effects)
    things = [pid for (topic, _), pid in owners.items() if topic == "things"]
    return len(owners) == 5 and sorted(map(things.count, set(things))) == [2, 2]
