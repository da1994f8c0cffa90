"""The raw relay: SELECT, produce, poll until acknowledged, DELETE, as fast as one process can go by hand.

No order rules, no shards, one producer, no outage survived: what the relay's promises cost is the difference.
"""

from __future__ import annotations

import os
import signal
import time

import psycopg
from confluent_kafka import KafkaError, Message, Producer

ROWS = 1000
SELECT = """
select shard, id, key, event_id::text, type, "time", payload
from stream.outbox where topic = 'orders' order by topic, shard, id limit %s
"""
DELETE = """
delete from stream.outbox o using unnest(%s::smallint[], %s::bigint[]) d (shard, id)
where o.topic = 'orders' and o.shard = d.shard and o.id = d.id
"""


def run() -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    topic = os.environ["STREAM_PREFIX"] + "orders"
    producer = Producer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 0,
            "partitioner": "murmur2_random",
        }
    )
    conn = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    for setting in (
        "synchronous_commit = off",
        "timezone = UTC",
        "enable_seqscan = off",
        "enable_bitmapscan = off",
        "enable_hashjoin = off",
        "enable_mergejoin = off",
    ):
        conn.execute(f"set {setting}".encode())
    cursor = conn.cursor(binary=True)
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    while not stopping:
        rows = cursor.execute(SELECT, [ROWS]).fetchall()
        if not rows:
            time.sleep(0.001)
            continue
        for _, _, key, event_id, type, at, payload in rows:
            headers = [
                ("ce_specversion", b"1.0"),
                ("ce_id", event_id.encode()),
                ("ce_source", b"/stream/outbox"),
                ("ce_type", type.encode()),
                ("ce_time", at.isoformat().encode()),
                ("content-type", b"application/avro"),
            ]
            producer.produce(topic, payload, key, headers=headers, on_delivery=delivered)
        while len(producer):
            producer.poll(0.01)
        if failed:
            raise SystemExit(f"not delivered: {failed[0]}")
        cursor.execute(DELETE, [[row[0] for row in rows], [row[1] for row in rows]])


if __name__ == "__main__":
    run()
