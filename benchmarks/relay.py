"""Contests of the relay: its rate against the raw loop, and its rate beside a transaction that is held open."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks.contest import Sample
from benchmarks.process import Clock, Process
from benchmarks.stage import Scene, Stage, wait_until
from stream.events import event_time, header

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
            lambda: relay.check_alive() and scene.published() >= WARM + count, "all rows published", every_s=0.005
        )
        seconds = time.monotonic() - begun
        cost = before.until(Clock.read(stage, [relay]), count)
        wait_until(lambda: scene.outbox_rows() == 0, "all rows deleted")
        relay.stop()
        check_topic(scene, [event.time for event in events], [event.id for event in events])
        return Sample(count / seconds, cost)


def held_transaction(scene: Scene) -> closing[psycopg.Connection[tuple[object, ...]]]:
    """A transaction with an id and a snapshot that has nothing to do with events."""
    conn: psycopg.Connection[tuple[object, ...]] = psycopg.connect(
        scene.config.database_url, application_name="unrelated"
    )
    conn.execute("set transaction isolation level repeatable read")
    conn.execute("create temp table unrelated as select 1")
    return closing(conn)


def check_topic(scene: Scene, times: list[object], ids: list[object]) -> None:
    """Every event once, with its id, and each key's in order."""
    count = len(times)
    consumer = Consumer(
        {
            "bootstrap.servers": scene.config.bootstrap_servers,
            "group.id": scene.config.prefix + "check",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(scene.topic, n, 0) for n in range(scene.partitions)])
    seen: dict[str | None, object] = {}
    last: dict[bytes | None, object] = {}
    while len(seen) < count:
        for message in consumer.consume(5000, 10.0) or [None]:
            assert message is not None and message.error() is None, f"{len(seen)} of {count} events in the topic"
            headers = message.headers() or []
            at = event_time(headers, 0)
            key = message.key()
            assert key not in last or last[key] < at, f"key {key!r} is out of order"  # type: ignore[operator]
            last[key] = at
            seen[header(headers, "ce_id")] = at
    consumer.close()
    assert scene.published() == count, "an event is in the topic twice"
    assert seen == {str(id): at for id, at in zip(ids, times, strict=True)}, "an event differs"
