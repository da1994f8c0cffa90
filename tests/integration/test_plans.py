"""How PostgreSQL goes about statements of many keys, for a group that its statistics do not know yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from stream.database import query
from stream.parking import FEW

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
        "load_parked",
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
    table = "parked" if name in ("bury", "load_parked", "lock_parked", "parked_lanes", "unpark") else "ledger"
    chosen = f"select event_id from stream.{table} where consumer_group = 'new' limit {ASKED}"
    ids = [id for (id,) in conn.execute(chosen.encode())]
    arguments: dict[str, Any] = {
        "group": "new",
        "ids": ids,
        "epochs": [0] * ASKED,
        "epoch": 0,
        "limit": 1,
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
    read = [
        (
            node["Node Type"],
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"],
        )
        for node in nodes(plan["Plan"])
    ]
    assert all(rows <= ASKED for _, rows in read), read
    if name in ("skip", "ledger_dead", "unclaim", "unpark"):
        assert ("Tid Scan", ASKED) in read, read


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def read_of_parked(conn: psycopg.Connection[Any]) -> int:
    """Rows that this session has read lately, one after the other or through an index."""
    [(rows,)] = conn.execute(
        """
        select pg_stat_get_xact_tuples_returned(i.indrelid) + sum(pg_stat_get_xact_tuples_returned(i.indexrelid))
        from pg_index i where i.indrelid = 'stream.parked'::regclass group by i.indrelid
        """
    )
    return int(rows)


def test_live_heads_are_looked_up_too(conn: psycopg.Connection[Any]) -> None:
    conn.commit()
    before = read_of_parked(conn)
    conn.execute("select stream.leave_live_heads('new', %s)", [list(range(1, ASKED + 1))])
    assert 0 < read_of_parked(conn) - before <= 3 * ASKED


@pytest.mark.parametrize("plan", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("group", ["aaa", "new", "old", "zzz"])
def test_whether_anything_of_a_group_is_parked_takes_one_row(
    conn: psycopg.Connection[Any], plan: str, group: str
) -> None:
    [(found,)], read = look(conn, plan, "any_parked", {"group": group})
    assert found == (group in ("new", "old"))
    assert read <= 1


@pytest.mark.parametrize("group", ["aaa", "new", "old", "zzz"])
def test_whether_a_lane_is_parked_takes_one_row_each_time(conn: psycopg.Connection[Any], group: str) -> None:
    conn.commit()
    before = read_of_parked(conn)
    for lane in range(1, ASKED + 1):  # more than it takes until the plan is kept
        [(found,)] = conn.execute("select stream.is_parked(%s, %s)", [group, lane])
        assert found == (group in ("new", "old"))
    assert read_of_parked(conn) - before <= ASKED


@pytest.mark.parametrize("plan", ["force_custom_plan", "force_generic_plan"])
def test_a_group_whose_parked_lanes_are_few_is_asked_for_them_and_else_for_the_runs(
    conn: psycopg.Connection[Any], plan: str
) -> None:
    conn.execute(PARKED.encode(), ["one", FEW])
    conn.execute(PARKED.encode(), ["one", FEW])  # each lane twice
    lanes = list(range(FEW - 1, FEW + 499))
    few, read = look(conn, plan, "some_parked_lanes", {"group": "one", "lanes": lanes, "few": FEW})
    assert sorted(few) == [(n,) for n in range(1, FEW + 1)]
    assert read == FEW
    conn.execute(PARKED.encode(), ["one", FEW + 1])
    several, read = look(conn, plan, "some_parked_lanes", {"group": "one", "lanes": lanes, "few": FEW})
    assert sorted(several) == [(FEW - 1,), (FEW,), (FEW + 1,)]
    assert read == FEW + 1 + 3
    many, read = look(conn, plan, "some_parked_lanes", {"group": "new", "lanes": lanes, "few": FEW})
    assert sorted(many) == [(n,) for n in lanes]
    assert read == FEW + 1 + len(lanes)
    for nobody in ("aaa", "zzz"):
        none, read = look(conn, plan, "some_parked_lanes", {"group": nobody, "lanes": lanes, "few": FEW})
        assert not none
        assert read <= 1


@pytest.mark.parametrize(
    ("group", "before"),
    [("a", "nothing was parked"), ("b", "nothing was parked"), ("a", "all of b's was taken away again")],
)
def test_a_look_costs_the_same_whatever_has_become_of_the_table_since_it_was_analyzed(
    new_database: Callable[[], str], group: str, before: str
) -> None:
    rows = 10_000
    arguments = {"group": group, "lanes": list(range(1, 11)), "few": FEW}
    with (
        psycopg.connect(new_database(), cursor_factory=psycopg.ClientCursor, autocommit=True) as conn,
        psycopg.connect(conn.info.dsn, password=conn.info.password) as slow,
    ):
        conn.execute("alter table stream.parked set (autovacuum_enabled = off)")
        conn.execute("vacuum analyze stream.parked")
        if before.startswith("all"):
            conn.execute(PARKED.encode(), ["b", rows])
            slow.execute("select pg_current_xact_id()")  # so long, nothing that is deleted is forgotten
            conn.execute("delete from stream.parked where lane <= %s", [rows - 20])
        else:
            conn.execute(PARKED.encode(), ["b", rows])
        for name, looks in (("any_parked", 1), ("parked_lanes", 10), ("some_parked_lanes", 2 * FEW)):
            explain = "explain (analyze, buffers, format json) " + query(name)
            [[[plan]]] = conn.execute(explain.encode(), arguments)
            pages = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
            assert pages <= 8 * looks, (name, pages)


def look(
    conn: psycopg.Connection[Any], plan: str, name: str, arguments: dict[str, Any]
) -> tuple[list[Any], int]:
    """What a query finds, prepared as it is in the long run, and how many rows of stream.parked it reads for it."""
    conn.commit()
    conn.execute(f"set local plan_cache_mode = {plan}".encode())
    before = read_of_parked(conn)
    found = psycopg.Cursor(conn).execute(query(name), arguments, prepare=True).fetchall()
    return found, read_of_parked(conn) - before
