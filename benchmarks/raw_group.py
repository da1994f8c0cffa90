"""The raw consumers: what a careful hand writes without a framework, with the same SQL as the group it stands beside.

    rows    500 events a transaction: one claim of them all, then event by event: decode, one pipelined statement
    ahead   the same, but all are decoded before the first statement: statements close together are cheaper
    sets    500 events a transaction: claim and effects in one statement
    single  one event, one transaction

No order across failures, no retries, one thread, no outage survived: what a group's promises cost is the difference.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

import psycopg
from confluent_kafka import Consumer, Message
from fastavro import parse_schema, schemaless_reader

from benchmarks.consumers._effects import INSERT, effect
from benchmarks.orders import TYPE
from stream.project import Project

BATCH = 500
COMMIT_EVERY_S = 0.5
CLAIM = """
insert into stream.ledger (consumer_group, event_id, epoch, attempts, worker)
select %s, id, 0, 1, 'raw' from unnest(%s::uuid[]) id
on conflict do nothing returning event_id::text
"""
CLAIM_AND_INSERT = """
with claimed as (
    insert into stream.ledger (consumer_group, event_id, epoch, attempts, worker)
    select %s, id, 0, 1, 'raw' from unnest(%s::uuid[]) id
    on conflict do nothing returning event_id
)
insert into effect (order_id, placed_at, lines, items)
select e.order_id, e.placed_at, e.lines, e.items
from unnest(%s::uuid[], %s::text[], %s::timestamptz[], %s::int[], %s::int[])
     with ordinality e (event_id, order_id, placed_at, lines, items, n)
join claimed using (event_id) order by e.n
"""


class Raw:
    """One process of a raw group."""

    def __init__(self, mode: str, group: str) -> None:
        self._group = group
        catalog = Project(os.environ["STREAM_PROJECT"]).schemas
        self._schema = parse_schema(catalog.latest(TYPE).definition)
        self._conn = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
        self._cursor = self._conn.cursor()
        prefix = os.environ["STREAM_PREFIX"]
        self._consumer = Consumer(
            {
                "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
                "group.id": prefix + self._group,
                "group.protocol": "consumer",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([prefix + "orders"])
        self._apply: Callable[[list[Message]], None] = {
            "rows": self._rows,
            "ahead": self._ahead,
            "sets": self._sets,
            "single": self._single,
        }[mode]
        self._limit = 1 if mode == "single" else BATCH

    def run(self) -> None:
        stopping: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 10, 10)
        consumer, limit = self._consumer, self._limit
        commit_at, uncommitted = 0.0, False
        while not stopping:
            first = consumer.poll(0.1)
            if first is not None:
                messages = [first, *consumer.consume(limit - 1, 0)] if limit > 1 else [first]
                for message in messages:
                    if message.error() is not None:
                        raise SystemExit(str(message.error()))
                self._apply(messages)
                uncommitted = True
            now = time.monotonic()
            if uncommitted and now > commit_at:
                consumer.commit(asynchronous=False)
                commit_at, uncommitted = now + COMMIT_EVERY_S, False
        if uncommitted:
            consumer.commit(asynchronous=False)
        consumer.close()

    def _rows(self, messages: list[Message]) -> None:
        self._execute(self._effect(message) for message in self._claimed(messages))

    def _ahead(self, messages: list[Message]) -> None:
        self._execute([self._effect(message) for message in self._claimed(messages)])

    def _claimed(self, messages: list[Message]) -> Iterable[Message]:
        """Begin, and claim; returns what was not claimed before."""
        batch = {event_id(message): message for message in messages}
        with self._conn.pipeline():
            self._conn.execute("begin")
            claimed = self._conn.execute(CLAIM, [self._group, literal(sorted(batch))])
        if claimed.rowcount == len(batch):
            return batch.values()
        new = {id for (id,) in claimed}
        return [message for id, message in batch.items() if id in new]

    def _execute(self, effects: Iterable[tuple[Any, ...]]) -> None:
        with self._conn.pipeline():
            for row in effects:
                self._cursor.execute(INSERT, row)
            self._cursor.execute("commit")

    def _sets(self, messages: list[Message]) -> None:
        batch = {event_id(message): message for message in messages}
        columns = zip(*[self._effect(message) for message in batch.values()], strict=True)
        ids = literal(list(batch))
        self._cursor.execute(
            CLAIM_AND_INSERT, [self._group, literal(sorted(batch)), ids, *map(list, columns)]
        )

    def _single(self, messages: list[Message]) -> None:
        [message] = messages
        cursor = self._cursor
        cursor.execute("begin")
        cursor.execute(CLAIM, [self._group, literal([event_id(message)])])
        if cursor.rowcount:
            cursor.execute(INSERT, self._effect(message))
        cursor.execute("commit")

    def _effect(self, message: Message) -> tuple[Any, ...]:
        stream = BytesIO(message.value())  # type: ignore[arg-type]
        stream.seek(5)
        data: Any = schemaless_reader(stream, self._schema, None)
        return effect(message.key().decode(), data)  # type: ignore[union-attr]


def event_id(message: Message) -> str:
    headers: Any = message.headers()
    for name, value in headers:
        if name == "ce_id":
            return str(value, "ascii")
    raise SystemExit("an event without an id")


def literal(ids: list[str]) -> str:
    return "{" + ",".join(ids) + "}"


if __name__ == "__main__":
    Raw(sys.argv[1], sys.argv[2]).run()
