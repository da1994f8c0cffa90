"""pg_terminate_backend on every session of the database but one's own, under load, several times."""

from __future__ import annotations

from pathlib import Path

import psycopg

from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.truth import Truth, Writers
from tests.support.waiting import until

END_ALL = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
"""


def test_nothing_is_lost_and_each_keys_order_is_kept(
    config: Config, environment: dict[str, str], tmp_path: Path
) -> None:
    truth = Truth(config, make_project(tmp_path / "small"))
    relays = [Command("relay", env=environment, cwd=truth.project.root) for _ in range(2)]
    for relay in relays:
        relay.says("relay.shards")
    with Writers(truth) as writers, psycopg.connect(config.database_url, autocommit=True) as conn:
        for times in (1, 2):
            writers.wait_transactions(100)
            conn.execute(END_ALL)
            for relay in relays:
                until(lambda relay=relay, times=times: relay.stderr.count("relay.connected") > times, 10)  # type: ignore[misc]
        writers.wait_transactions(100)
    truth.wait_published()
    assert [relay.stop() for relay in relays] == [0, 0]
    truth.check()
