"""A handler that fails on one key: it is told, tried again, and goes on in order once the cause is gone, unaided."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from tests.support.effects import Effects, committed, consume, effect_project, migrate, shorten_session
from tests.support.groups import publish
from tests.support.processes import Command
from tests.support.waiting import until

pytestmark = pytest.mark.soak

CAUSE = "create table trouble (key text primary key)"
# The effect first: what a failed try wrote must be gone.
FAIL = """if ctx.db.execute("select from trouble where key = %s", [event.key]).rowcount:
        raise LookupError(f"no price for {event.key}")"""


def failures(command: Command) -> list[dict[str, Any]]:
    """What the log says of failed events, in order."""
    lines = [json.loads(line) for line in command.stderr.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "event.failed"]


@pytest.mark.parametrize("batch", [1, 10])
def test_a_failing_key_waits_until_the_cause_is_gone_and_no_other_does(
    tmp_path: Path,
    config: Config,
    environment: dict[str, str],
    effects: Effects,
    conn: psycopg.Connection[Any],
    batch: int,
) -> None:
    environment = {**environment, "STREAM_TIME_SCALE": "0.05"}
    project = effect_project(tmp_path / "shop", after=FAIL, batch=batch, attempts=1000)
    migrate(project, environment)
    conn.execute(CAUSE)
    conn.execute("insert into trouble values ('bad')")
    conn.commit()
    keys = ["bad", *(f"k{n}" for n in range(9))]
    ids = publish(config, project, [(key, n) for n in range(5) for key in keys])
    others = {key: [0, 1, 2, 3, 4] for key in keys if key != "bad"}

    relay = Command("relay", env=environment, cwd=project.root)
    worker = consume(project, environment)
    worker.says("partitions.assigned")
    shorten_session(config)
    until(lambda: effects.by_key() == others, 30, lambda: worker.stderr)
    until(lambda: len(failures(worker)) >= 2, 30, lambda: worker.stderr)
    first, second = failures(worker)[:2]
    assert (first["event_id"], first["key"], first["type"]) == (str(ids[0]), "bad", "Happened")
    assert first["error"] == "LookupError: no price for bad"
    assert (first["topic"], first["offset"], first["attempt"]) == ("things", 0, 1)
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert {line["event_id"] for line in failures(worker)} == {str(ids[0])}  # never one behind it

    # It holds its key and not the offset. Killed, the group goes on counting where it was.
    until(lambda: sum(committed(config).values()) == 50)
    worker.kill()
    tried = max(line["attempt"] for line in failures(worker))
    worker = consume(project, environment)
    until(lambda: failures(worker), 30, lambda: worker.stderr)
    assert failures(worker)[0]["event_id"] == str(ids[0])
    assert failures(worker)[0]["attempt"] in (tried, tried + 1)  # or its death came before the line

    conn.execute("delete from trouble")
    conn.commit()
    until(lambda: effects.by_key().get("bad") == [0, 1, 2, 3, 4], 60, lambda: worker.stderr)
    assert worker.stop() == 0
    assert relay.stop() == 0
    assert effects.by_key() == {**others, "bad": [0, 1, 2, 3, 4]}
    assert conn.execute("select count(*) from stream.parked").fetchall() == [(0,)]
