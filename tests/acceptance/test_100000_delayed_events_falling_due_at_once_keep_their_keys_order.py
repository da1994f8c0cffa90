"""500 keys, 200 events each, written in one order and due in another, under two relays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream import app
from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.truth import first_occurrences
from tests.support.waiting import until

pytestmark = pytest.mark.soak

EVENTS, KEYS = 100_000, 500

SCHEDULE = """
select stream.append_encoded(
    array_agg('things'::text), array_agg(('key-' || n %% %(keys)s)::bytea), array_agg(gen_random_uuid()),
    array_agg('Happened'::text), array_agg(now()), array_agg('\\x0000000001'::bytea), array_agg(null::jsonb),
    array_agg(null::text), array_agg(null::text),
    array_agg(%(due)s::timestamptz - clock_timestamp() + random() * interval '100 ms'),
    array_agg(null::text), array_agg(null::interval))
from generate_series(1, %(events)s) n
"""


def test_each_keys_events_arrive_in_order_of_due_time(
    config: Config, environment: dict[str, str], tmp_path: Path, conn: psycopg.Connection[Any]
) -> None:
    project = make_project(tmp_path / "small")
    app.migrate(config, project)
    relays = [Command("relay", env=environment, cwd=project.root) for _ in range(2)]
    for relay in relays:
        relay.says("relay.shards")
    [(due,)] = conn.execute("select now() + interval '4 s'")
    for _ in range(5):
        conn.execute(SCHEDULE, {"events": EVENTS // 5, "keys": KEYS, "due": due})
    conn.execute(
        "create table expected as"
        " select event_id::text, convert_from(key, 'UTF8') as key, due_at, id from stream.scheduled"
    )
    conn.commit()

    def left() -> int:
        [(rows,)] = conn.execute(
            "select (select count(*) from stream.scheduled) + (select count(*) from stream.outbox)"
        )
        conn.rollback()
        return int(rows)

    until(lambda: left() == 0, 60, lambda: f"{left()} are left")
    assert [relay.stop() for relay in relays] == [0, 0]
    expected: dict[str, list[str]] = {}
    for key, id in conn.execute("select key, event_id from expected order by key, due_at, id"):
        expected.setdefault(key, []).append(id)
    found = first_occurrences(config, "things")
    assert {key: len(ids) for key, ids in found.ids.items()} == {
        f"key-{n}": EVENTS // KEYS for n in range(KEYS)
    }
    assert found.ids == expected
    assert found.doubles == 0
