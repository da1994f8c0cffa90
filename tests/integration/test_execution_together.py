"""Many events in one transaction come to the same as each alone, whatever their handlers do with `ctx.db`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import psycopg
import pytest

from stream import Context, Event
from tests.support.executions import INSERT
from tests.support.small import record

EVENTS = 60
Step = Callable[[Context, Event, int], None]


def write(ctx: Context, event: Event, n: int) -> None:
    ctx.db.execute(INSERT, [event.id, event.key, n])


def write_much(ctx: Context, event: Event, n: int) -> None:
    ctx.db.execute("select length(%s)", ["x" * 90_000])
    write(ctx, event, n)


def write_many(ctx: Context, event: Event, n: int) -> None:
    ctx.db.cursor().executemany(INSERT, [(event.id, event.key, n + i) for i in range(40)])


def write_with_a_client_cursor(ctx: Context, event: Event, n: int) -> None:
    psycopg.ClientCursor(ctx.db).execute(INSERT, [event.id, event.key, n])


def read(ctx: Context, event: Event, n: int) -> None:
    assert [i for (i,) in ctx.db.execute("select generate_series(1, %s)", [n])] == list(range(1, n + 1))


def read_two_at_once(ctx: Context, event: Event, n: int) -> None:
    one, two = ctx.db.execute("select %s::int", [n]), ctx.db.execute("select %s::int", [n + 1])
    write(ctx, event, n)
    assert (two.fetchone(), one.fetchone()) == ((n + 1,), (n,))


def save(ctx: Context, event: Event, n: int) -> None:
    with ctx.db.transaction():
        write(ctx, event, n)


def save_and_fail_inside(ctx: Context, event: Event, n: int) -> None:
    with ctx.db.transaction():
        write(ctx, event, n)
        try:
            with ctx.db.transaction():
                write(ctx, event, n + 100)
                fail(ctx, event, n)
        except psycopg.errors.DivisionByZero:
            write(ctx, event, n + 200)


def sync_in_between(ctx: Context, event: Event, n: int) -> None:
    with ctx.db.pipeline() as pipeline:
        write(ctx, event, n)
        pipeline.sync()
        write(ctx, event, n + 1)


def skip(ctx: Context, event: Event, n: int) -> None:
    ctx.skip("nothing")


def fail(ctx: Context, event: Event, n: int) -> None:
    ctx.db.execute("select 1 / (%s::int - %s::int)", [n, n]).fetchall()


def fail_unseen(ctx: Context, event: Event, n: int) -> None:
    ctx.db.execute("select 1 / (%s::int - %s::int)", [n, n])


def fail_and_go_on(ctx: Context, event: Event, n: int) -> None:
    with suppress(psycopg.Error):
        fail(ctx, event, n)


def fail_in_python(ctx: Context, event: Event, n: int) -> None:
    raise RuntimeError("enough")


WELL: list[Step] = [write, write_much, write_many, write_with_a_client_cursor, read, read_two_at_once, save]
WELL += [save_and_fail_inside, sync_in_between, skip]
BADLY: list[Step] = [fail, fail_unseen, fail_and_go_on, fail_in_python]


def plan(random: Random) -> list[tuple[Step, int]]:
    steps = [(random.choice(WELL), random.randint(1, 50)) for _ in range(random.randint(0, 6))]
    if random.random() < 0.08:
        steps.insert(random.randint(0, len(steps)), (random.choice(BADLY), 1))
    return steps


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_together_is_as_alone(
    small, worker, effects, conn: psycopg.Connection[Any], seed: int, careful: bool
) -> None:
    random = Random(seed)
    plans = [plan(random) for _ in range(EVENTS)]

    def handler(event: Event, ctx: Context) -> None:
        for step, n in plans[event.data["n"]]:
            step(ctx, event, n)

    made = worker(handler, batch=500)
    made.execution._transactions.careful_for = 10_000 if careful else 0
    records = [record(small, f"k{n}", n) for n in range(EVENTS)]
    together = made.kinds(*records), sorted(effects()), ledger(conn)
    conn.execute("truncate effect, stream.ledger")
    conn.commit()
    alone = [made.kinds(each)[0] for each in records], sorted(effects()), ledger(conn)
    assert together == alone
    assert 0 < together[0].count("failed") < EVENTS / 3


def ledger(conn: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    rows = conn.execute("select event_id::text, outcome from stream.ledger order by event_id").fetchall()
    conn.commit()
    return rows
