"""How PostgreSQL goes about statements of many keys, for a group that its statistics do not know yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from stream.database import query

ROWS, ASKED = 3_000, 20
LEDGER = """
insert into stream.ledger (consumer_group, event_id, attempts, worker)
select %s, gen_random_uuid(), 1, 'w' from generate_series(1, %s)
"""
PARKED = """
insert into stream.parked (consumer_group, topic, partition, "offset", event_id, epoch, type, key, value, header_names,
                           header_values, timestamp, lane, attempts, due_at, first_failed_at, last_failed_at,
                           error_kind, error_stage, error_class, error_message, errors, fingerprint, worker)
select %s, 'orders', 0, n, gen_random_uuid(), 0, 'Happened', 'k', 'v', '{}', '{}', now(), n, 1, now(), now(), now(),
       'permanent', 'handler', 'E', 'm', '[]', 'f', 'w'
from generate_series(1, %s) n
"""


@pytest.fixture
def conn(new_database: Callable[[], str]) -> Iterator[psycopg.Connection[Any]]:
    """Group `old` was there when the statistics were made, `new` came after them."""
    with psycopg.connect(new_database(), cursor_factory=psycopg.ClientCursor) as conn:
        for table, fill in (("ledger", LEDGER), ("parked", PARKED)):
            conn.execute(f"alter table stream.{table} set (autovacuum_enabled = off)".encode())
            conn.execute(fill.encode(), ["old", ROWS])
            conn.execute(f"analyze stream.{table}".encode())
            conn.execute(fill.encode(), ["new", ROWS])
        yield conn


@pytest.mark.parametrize(
    "name",
    [
        "applied",
        "bury",
        "done_in_other_epochs",
        "ledger_dead",
        "lock_parked",
        "parked_lanes",
        "skip",
        "unclaim",
        "unpark",
    ],
)
def test_what_is_asked_for_is_looked_up_and_not_the_whole_group_read(
    conn: psycopg.Connection[Any], name: str
) -> None:
    table = "parked" if name in ("bury", "lock_parked", "parked_lanes", "unpark") else "ledger"
    chosen = f"select event_id from stream.{table} where consumer_group = 'new' limit {ASKED}"
    ids = [id for (id,) in conn.execute(chosen.encode())]
    arguments: dict[str, Any] = {
        "group": "new",
        "ids": ids,
        "epochs": [0] * ASKED,
        "epoch": 0,
        "on_dead": "release",
    }
    arguments |= {"topics": ["orders"] * ASKED, "partitions": [0] * ASKED, "attempts": [1] * ASKED}
    arguments |= {name: ["r"] * ASKED for name in ("reasons", "stacks", "trace_ids")}
    arguments["lanes"] = list(range(ASKED))
    arguments["deploy_faults"] = [False] * ASKED
    if table == "parked":
        places = 'select "offset" from stream.parked where event_id = %s'
        arguments["offsets"] = [conn.execute(places, [id]).fetchone()[0] for id in ids]  # type: ignore[index]
    conn.execute("set local plan_cache_mode = force_custom_plan")
    explain = "explain (analyze, timing off, format json) " + query(name)
    [[[plan]]] = conn.execute(explain.encode(), arguments)
    read = [(node["Node Type"], node["Actual Rows"] * node["Actual Loops"]) for node in nodes(plan["Plan"])]
    assert all(rows <= ASKED for _, rows in read), read
    if name in ("skip", "ledger_dead", "unclaim", "unpark"):
        assert ("Tid Scan", ASKED) in read, read


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def test_live_heads_are_looked_up_too(conn: psycopg.Connection[Any]) -> None:
    read = "select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where relname = 'parked'"
    conn.commit()
    conn.execute("select stream.leave_live_heads('new', %s)", [list(range(1, ASKED + 1))])
    [(rows,)] = conn.execute(read)
    assert rows <= 3 * ASKED
