"""From append to effect while what is beneath dies and comes back: nobody starts relay or groups again."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from stream import stack
from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, write_group
from tests.support.processes import Command
from tests.support.truth import Truth, Writers
from tests.support.waiting import until

pytestmark = pytest.mark.long

GROUPS = {"single": 1, "bulk": 20}


def kill_kafka(data: Path, config: Config) -> None:
    os.kill(stack.processes(data)["kafka"], signal.SIGKILL)
    stack.up(data)


def restart_postgres_as_after_a_crash(data: Path, config: Config) -> None:
    stack.restart_postgres(data, "immediate")


def terminate_every_connection(data: Path, config: Config) -> None:
    with psycopg.connect(config.database_url) as conn:
        conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )


OUTAGES: list[Callable[[Path, Config], None]] = [
    terminate_every_connection,
    restart_postgres_as_after_a_crash,
    kill_kafka,
]


@pytest.mark.timeout(180)
def test_relay_and_groups_go_on_by_themselves_after_every_outage(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects, stack_data: Path
) -> None:
    project = effect_project(tmp_path / "shop")
    for group, batch in GROUPS.items():
        write_group(project, group, batch=batch)
    truth = Truth(config, project)
    relay = Command("relay", env=environment, cwd=project.root)
    groups = consume(project, environment, *GROUPS)

    def appended() -> int:
        return int(effects.fetch("select count(*) from truth")[0][0])

    def catch_up(after: str) -> None:
        """What is committed now is applied by both groups."""
        count = appended()
        until(
            lambda: all(effects.count(group) >= count for group in GROUPS),
            40,
            lambda: f"{after}: {count} effects\n{relay.stderr[-1500:]}\n{groups.stderr[-1500:]}",
        )

    with Writers(truth, threads=2, pause_s=0.02) as writers:
        writers.wait_transactions(20)
        catch_up("at the start")
        for outage in OUTAGES:
            outage(stack_data / ".stream", config)
            writers.wait_transactions(20)
            catch_up(outage.__name__)
    catch_up("at the end")
    assert (groups.stop(), relay.stop()) == (0, 0), relay.stderr + groups.stderr

    for group in GROUPS:
        applied: dict[str, list[str]] = {}
        for key, id in effects.fetch(
            "select key, event_id::text from effect where consumer = %s order by seq", group
        ):
            applied.setdefault(key, []).append(id)
        assert applied == truth.expected(), group
