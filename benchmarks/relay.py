"""Contests of the relay: its rate against the raw loop, and its rate beside a transaction that is held open."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from datetime import datetime

import psycopg

from benchmarks.contest import Sample
from benchmarks.orders import TOPIC, Placed
from benchmarks.process import Clock, Process
from benchmarks.stage import Scene, Stage, wait_until
from stream.events import Record, event_id_of, event_time
from stream.kafka.reader import Reader

WARM = 500


def drain(stage: Stage, count: int, *, keys: int | None, raw: bool, held_open: bool = False) -> Sample:
    """Events a second from the commit of `count` outbox rows to the last of them in the topic."""
    with stage.scene() as scene, ExitStack() as stack:
        if held_open:
            stack.enter_context(held_transaction(scene))
        events = stage.orders.placed(WARM + count, keys=keys)
        scene.fill_outbox(events[:WARM])
        relay = Process.raw(scene, "raw_relay") if raw else Process.stream(scene, "relay")
        stack.callback(relay.kill)
        # The first acknowledgement of a new idempotent producer takes half a second.
        wait_until(lambda: relay.check_alive() and scene.published() == WARM, "the relay's first rows")
        begun = scene.fill_outbox(events[WARM:])
        before = Clock.read(stage, [relay])
        wait_until(
            lambda: relay.check_alive() and scene.published() >= WARM + count,
            "all rows published",
            every_s=0.005,
        )
        seconds = time.monotonic() - begun
        cost = before.until(Clock.read(stage, [relay]), count)
        wait_until(lambda: scene.outbox_rows() == 0, "all rows deleted")
        relay.stop()
        check_topic(scene, events)
        return Sample(count / seconds, cost)


def held_transaction(scene: Scene) -> closing[psycopg.Connection[tuple[object, ...]]]:
    """A transaction with an id and a snapshot that has nothing to do with events."""
    conn: psycopg.Connection[tuple[object, ...]] = psycopg.connect(
        scene.config.database_url, application_name="unrelated"
    )
    conn.execute("set transaction isolation level repeatable read")
    conn.execute("create temp table unrelated as select 1")
    return closing(conn)


def check_topic(scene: Scene, events: list[Placed]) -> None:
    """Every event once, with its id, and each key's in order."""
    reader = Reader(scene.config, [TOPIC])
    published: list[Record] = []
    while len(published) < len(events):
        records = reader.read(wait_s=5.0, most=5000)
        assert records, f"only {len(published)} of {len(events)} events are in the topic"
        published += records
    reader.close()
    assert scene.published() == len(events), "an event is in the topic twice"
    last: dict[bytes | None, datetime] = {}
    for record in published:
        at = event_time(record.headers, 0)
        assert record.key not in last or last[record.key] < at, f"key {record.key!r} is out of order"
        last[record.key] = at
    assert {event_id_of(record) for record in published} == {event.id for event in events}, (
        "an event is missing"
    )
