"""Contests of the door in: what `append` costs a writer beside a plain insert of the same bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import psycopg

from benchmarks.contest import Sample
from benchmarks.latency import insert, prepared
from benchmarks.orders import TYPE, body
from benchmarks.process import Clock
from benchmarks.stage import Stage
from stream.outbox import Outbox

WARM = 50
Write = Callable[[psycopg.Connection[tuple[object, ...]], int], object]


def measure(stage: Stage, count: int, way: str) -> Sample:
    """Transactions a second of one writer that writes nothing but one event each."""
    with stage.scene() as scene, psycopg.connect(scene.config.database_url, autocommit=True) as conn:
        write = ways(stage, WARM + count)[way]
        for n in range(WARM):
            with conn.transaction():
                write(conn, n)
        before = Clock.read(stage, [])
        begun = time.monotonic()
        for n in range(WARM, WARM + count):
            with conn.transaction():
                write(conn, n)
        seconds = time.monotonic() - begun
        cost = before.until(Clock.read(stage, []), count)
        assert scene.outbox_rows() == WARM + count, "not as many rows as events"
        return Sample(count / seconds, cost)


def ways(stage: Stage, count: int) -> dict[str, Write]:
    """Event number n by a plain insert, by the SQL function alone, and by Outbox.append, which encodes it first."""
    events = stage.orders.placed(count)
    rows = [prepared(event) for event in events]
    outbox = Outbox(stage.project)
    random = Random(7)
    bodies = [body(n, random) for n in range(count)]
    return {
        "insert": lambda conn, n: insert(conn, events[n]),
        "encoded": lambda conn, n: Outbox.write(conn, [rows[n]]),
        "append": lambda conn, n: outbox.append(conn, TYPE, key=events[n].key.decode(), data=bodies[n]),
    }
