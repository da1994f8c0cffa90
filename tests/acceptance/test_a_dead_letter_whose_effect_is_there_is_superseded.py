"""What was repaired by hand since it died does not run again: the replay says so, and closes the letter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.processes import Command, run
from tests.support.waiting import until

FAIL = """assert event.data["n"] != 1, "no price\""""


def test_an_effect_that_was_repaired_is_not_made_twice(
    tmp_path: Path,
    config: Config,
    environment: dict[str, str],
    effects: Effects,
    conn: psycopg.Connection[Any],
) -> None:
    project = effect_project(tmp_path / "shop", after=FAIL, attempts=1)
    migrate(project, environment)
    publish(config, project, [("a", 0), ("a", 1), ("a", 2)])
    relay = Command("relay", env=environment, cwd=project.root)
    worker = consume(project, environment)
    until(lambda: effects.by_key() == {"a": [0, 2]}, 30, lambda: worker.stderr)
    conn.execute(
        "insert into effect (consumer, key, n, event_id) select 'testers', 'a', 1, event_id from stream.dead_letter"
    )
    conn.execute("update stream.ledger set outcome = 'done', reason = 'by hand' where outcome = 'dead'")
    conn.commit()

    replay = run("dlq", "replay", "1", env=environment, cwd=project.root)
    assert replay.wait() == 0, replay.stderr
    assert "its effect is there already" in replay.stderr
    assert "closed as superseded" in replay.stderr
    assert run("dlq", "replay", "1", env=environment, cwd=project.root).wait() == 4
    publish(config, project, [("a", 3)])
    until(lambda: effects.by_key() == {"a": [0, 2, 1, 3]}, 30, lambda: worker.stderr)
    assert (worker.stop(), relay.stop()) == (0, 0)
    assert effects.by_key() == {"a": [0, 2, 1, 3]}
    assert effects.fetch("select count(*) from stream.parked") == [(0,)]
    assert effects.fetch("select status from stream.dead_letter") == [("superseded",)]
    assert effects.fetch("select reason from stream.ledger where reason is not null") == [("by hand",)]
