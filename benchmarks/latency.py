"""Contest of latency: from the commit of an order with its event to the commit of the effect, at a steady rate."""

from __future__ import annotations

import time
from contextlib import ExitStack

import psycopg

from benchmarks.contest import Sample
from benchmarks.groups import applied, check_effects, start
from benchmarks.orders import TOPIC, TYPE, Placed
from benchmarks.process import Clock, Process
from benchmarks.stage import Scene, Stage, wait_until
from stream.outbox import Outbox, Prepared

RATE = 100
WARM_S = 2
# Both stamps are the server's own (track_commit_timestamp): nobody asks while the race is on.
TOOK = """
select percentile_cont(array[0.5, 0.99]) within group (order by milliseconds)
from (select 1000 * extract(epoch from pg_xact_commit_timestamp(e.xmin) - pg_xact_commit_timestamp(p.xmin))
             as milliseconds
      from placed p join effect e using (placed_at) where p.n >= %s) took
"""


def measure(stage: Stage, seconds: int, *, raw: bool) -> Sample:
    """The median in milliseconds; `also` has the 99th percentile."""
    with stage.scene() as scene, ExitStack() as stack:
        members = [
            Process.raw(scene, "raw_relay") if raw else Process.stream(scene, "relay"),
            start(scene, "single8", raw=raw),
        ]
        for member in members:
            stack.callback(member.kill)
        warm, count = RATE * WARM_S, RATE * seconds
        events = stage.orders.placed(warm + count, keys=(warm + count) // 4)
        scene.conn.execute("create table placed (n int, placed_at timestamptz)")
        place(scene, events[:1], 0, raw=raw)
        wait_until(lambda: all(m.check_alive() for m in members) and applied(scene, 1), "the first effect")
        place(scene, events[1:warm], 1, raw=raw)
        before = Clock.read(stage, members)
        place(scene, events[warm:], warm, raw=raw)
        wait_until(
            lambda: all(m.check_alive() for m in members) and applied(scene, len(events)), "all effects"
        )
        cost = before.until(Clock.read(stage, members), count)
        for member in members:
            member.stop()
        check_effects(scene, len(events))
        [(took,)] = scene.conn.execute(TOOK, [warm]).fetchall()
        assert isinstance(took, list)
        return Sample(float(took[0]), cost, {"p99": float(took[1])})


def place(scene: Scene, events: list[Placed], first: int, *, raw: bool) -> None:
    """One order a transaction, RATE a second."""
    with psycopg.connect(scene.config.database_url, autocommit=True) as conn:
        begun = time.monotonic()
        for n, event in enumerate(events):
            time.sleep(max(0.0, begun + n / RATE - time.monotonic()))
            with conn.transaction():
                conn.execute("insert into placed values (%s, %s)", [first + n, event.time])
                if raw:
                    insert(conn, event)
                else:
                    Outbox.write(conn, [prepared(event)])


def insert(conn: psycopg.Connection[tuple[object, ...]], event: Placed) -> None:
    """A row as a hand without the door would write it."""
    conn.execute(
        "insert into stream.outbox (topic, key, event_id, type, time, payload) values (%s, %s, %s, %s, %s, %s)",
        [TOPIC, event.key, event.id, TYPE, event.time, event.payload],
    )


def prepared(event: Placed) -> Prepared:
    return Prepared(TOPIC, event.key, event.id, TYPE, event.time, event.payload, None, None, None, None, None)
