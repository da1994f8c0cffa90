"""One event never succeeds, of all others one try in a hundred fails: each of these is applied once, in order per key.

What is behind the one that is given up goes on, or waits for a person, as its group says.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate, write_group
from tests.support.groups import publish
from tests.support.processes import Command
from tests.support.topics import read_all
from tests.support.waiting import until

pytestmark = pytest.mark.soak

KEYS, EVENTS = 500, 10_000
# The effect first: what a failed try wrote must be gone.
FAIL = """\
if event.key == "bad" and event.data["n"] == 0:
        raise ValueError("never")
    if random.Random(f"{event.id} {ctx.attempt}").random() < 0.01:
        raise (TransientError if event.data["n"] % 2 else ValueError)("not now")"""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("batch", [1, 500])
def test_one_key_that_always_fails_among_500_holds_no_other(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects, batch: int
) -> None:
    environment = {**environment, "STREAM_TIME_SCALE": "0.05"}
    project = effect_project(tmp_path / "shop", "release", after=FAIL, batch=batch)
    write_group(project, "hold", after=FAIL, batch=batch, on_dead="hold")
    migrate(project, environment)
    keys = ["bad", *(f"k{n}" for n in range(KEYS - 1))]
    each = EVENTS // KEYS
    publish(config, project, [(key, n) for n in range(each) for key in keys])
    relay = Command("relay", env=environment, cwd=project.root)
    worker = consume(project, environment, "release", "hold")

    until(lambda: effects.count("release") >= EVENTS - 1, 90, lambda: worker.stderr[-3000:])
    until(lambda: effects.count("hold") >= EVENTS - each, 90, lambda: worker.stderr[-3000:])
    until(
        lambda: (
            effects.fetch("select count(*) from stream.parked where not held and due_at is not null")
            == [(0,)]
        )
    )
    others = {key: list(range(each)) for key in keys if key != "bad"}
    effects.check({**others, "bad": list(range(1, each))}, "release")
    effects.check(others, "hold")

    letters = effects.fetch(
        "select consumer_group, key, kind, attempts, on_dead from stream.dead_letter order by 1"
    )
    assert letters == [
        ("hold", b"bad", "exhausted", 5, "hold"),
        ("release", b"bad", "exhausted", 5, "release"),
    ]
    parked = effects.fetch('select consumer_group, key, held from stream.parked order by "offset"')
    assert parked == [("hold", b"bad", n == 0) for n in range(each)]
    for group in ("release", "hold"):
        until(lambda group=group: [m.key() for m in read_all(config, f"{group}.dlq")] == [b"bad"])
    assert worker.stop() == 0
    assert relay.stop() == 0
