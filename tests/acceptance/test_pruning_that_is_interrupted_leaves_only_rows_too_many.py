"""Pruning stopped in the middle, in order or by SIGKILL: the horizon is moved, and the same command goes on."""

import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from tests.support.effects import effect_project, migrate
from tests.support.letters import rows
from tests.support.processes import Command, run
from tests.support.waiting import until

pytestmark = pytest.mark.long

ROWS = 300_000
OLD = """
insert into stream.ledger (consumer_group, event_id, attempts, worker, at)
select 'testers', gen_random_uuid(), 1, 'w1', now() - interval '100 days' + n * interval '1 ms'
from generate_series(1, %s) n
"""
PRUNE = ("ledger", "prune", "--older-than", "90d", "--execute")


def left(conn: psycopg.Connection[Any]) -> int:
    [(count,)] = rows(conn, "select count(*) from stream.ledger")
    return int(count)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 6), (signal.SIGTERM, 6), (signal.SIGKILL, -9)])
def test_pruning_goes_on_where_it_was_stopped(
    number: signal.Signals,
    code: int,
    config: Config,
    environment: dict[str, str],
    conn: psycopg.Connection[Any],
    tmp_path: Path,
) -> None:
    project = effect_project(tmp_path / "shop")
    migrate(project, environment)
    conn.execute(OLD, [ROWS])
    conn.commit()
    command = Command(*PRUNE, env=environment, cwd=project.root)
    until(lambda: left(conn) < ROWS, 60)
    command.send(number)
    assert command.wait() == code, command.stderr
    rest = left(conn)
    assert 0 < rest < ROWS
    assert rows(conn, "select ledger_pruned_before < now() - interval '89 days' from stream.group_state") == [
        (True,)
    ]
    if code == 6:
        assert "older rows are left" in command.error
        assert command.stderr.splitlines()[-1] == "-> stream ledger prune --older-than 90d --execute"
    again = run(*PRUNE, env=environment, cwd=project.root)
    assert again.wait() == 0, again.stderr
    assert " rows deleted" in again.stderr
    assert left(conn) == 0
