"""Under a supervisor that only restarts: after its third death the event is a dead letter, all others are applied."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate, shorten_session
from tests.support.groups import publish
from tests.support.processes import Command
from tests.support.waiting import until

pytestmark = pytest.mark.soak

KILLERS = {
    "kills": "event.data['n'] == 666 and os.kill(os.getpid(), 9)",
    "exhausts memory": "event.data['n'] == 666 and bytearray(1 << 62)",
    "never returns": "event.data['n'] == 666 and time.sleep(3600)",
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("how", "batch"), [(how, batch) for how in KILLERS for batch in (20, 1)])
def test_after_the_third_death_the_event_is_dead_and_all_others_are_applied_once(
    tmp_path: Path, environment: dict[str, str], config: Config, how: str, batch: int
) -> None:
    # One by one, several are in flight when the process dies: all the others take a while.
    before = KILLERS[how] if batch > 1 else f"{KILLERS[how]}; time.sleep(0.05)"
    project = effect_project(tmp_path, before=before, timeout=1.0, batch=batch)
    migrate(project, environment)
    events = [(f"k{n % 10}", n) for n in range(60)]
    events.insert(25, ("bad", 666))
    events.append(("bad", 100))
    publish(config, project, events)
    effects = Effects(config.database_url)
    deaths, command = 0, consume(project, environment)
    deadline = time.monotonic() + 120
    while effects.count() < 61:
        assert time.monotonic() < deadline, (deaths, effects.count(), command.stderr[-2000:])
        if not command.running:
            assert command.wait() in ((-9,) if how == "kills" else (7,)), command.stderr[-2000:]
            deaths += 1
            command = consume(project, environment)
        shorten_session(config)  # each start of a process makes it longer again
        time.sleep(0.2)
    letters = effects.fetch("select kind, attempts, event_id from stream.dead_letter")
    assert [kind for kind, *_ in letters] == ["crash"]
    assert deaths == 3
    assert sorted(n for numbers in effects.by_key().values() for n in numbers) == [*range(60), 100]
    until(lambda: effects.fetch("select count(*) from stream.suspect") == [(0,)])
    # The dead one's session may last longer than the new one's work: until then half of the partitions are still its.
    until(
        lambda: (
            len(named(command, "partitions.assigned")) == 8
            and named(command, "suspects.passed") == named(command, "partitions.suspect")
        )
    )
    assert command.stop() == 0
    assert effects.fetch("select count(*) from stream.assignment where released_at is null") == [(0,)]
    effects.close()


def named(command: Command, event: str) -> set[str]:
    """The partitions that its log names with this event."""
    lines = [json.loads(line) for line in command.stderr.splitlines() if f'"event": "{event}"' in line]
    return {partition for line in lines for partition in line["partitions"]}
