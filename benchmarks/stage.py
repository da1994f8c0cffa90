"""Stage: real servers for the benchmarks alone, and a fresh database, prefix and set of topics for each run."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from psycopg import sql

from benchmarks.orders import ROOT, TOPIC, TYPE, Orders, Placed
from stream import app, stack
from stream.config import Config
from stream.database import LOCK_APPEND
from stream.events import cloud_headers
from stream.floors import SHARDS
from stream.project import Project

GROUPS = Path(__file__).parent / "consumers"
WAIT_S = 120.0


def say(text: str) -> None:
    """Progress, for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def wait_until(
    true: Callable[[], bool], what: str, *, every_s: float = 0.01, timeout_s: float = WAIT_S
) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s in vain: {what}")
        time.sleep(every_s)


def tail(log: Path) -> str:
    """Its last lines."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


class Stage:
    """Kafka and PostgreSQL of one whole benchmark, as `stream stack` makes them, in a folder of their own.

    One setting differs: PostgreSQL notes when each transaction committed, which the latency is read from.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="stream-bench-"))
        self._data = self.folder / ".stream"
        shutil.copytree(ROOT / "schemas", self.folder / "schemas")
        shutil.copytree(GROUPS, self.folder / "consumers", ignore=shutil.ignore_patterns("__pycache__"))
        self.project = Project(self.folder)
        self.orders = Orders(self.project)

    def open(self) -> None:
        self.addresses = stack.up(self._data, progress=say)
        with psycopg.connect(self.addresses.database_url, autocommit=True) as conn:
            conn.execute("alter system set track_commit_timestamp = on")
        stack.restart_postgres(self._data)
        self.pids = stack.processes(self._data)
        client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.addresses.bootstrap_servers,
            "log_level": 0,
        }
        self.admin = AdminClient(client)
        self.producer = Producer(
            {
                **client,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "max.in.flight.requests.per.connection": 1,
                "queue.buffering.max.messages": 1_000_000,
            }
        )

    def close(self) -> None:
        try:
            stack.down(self._data, delete=True)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def scene(self) -> Iterator[Scene]:
        """A database, migrated, and topics that no other run has seen."""
        name = f"bench_{uuid.uuid4().hex[:10]}"
        prefix = f"{name}."
        url = self.addresses.database_url.rsplit("/", 1)[0] + "/" + name
        with psycopg.connect(self.addresses.database_url, autocommit=True) as conn:
            conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        config = Config(self.folder, self.addresses.bootstrap_servers, url, prefix)
        app.migrate(config, self.project)
        try:
            with psycopg.connect(url, autocommit=True, application_name="benchmark") as conn:
                conn.execute("checkpoint")
                scene = Scene(self, config, conn)
                try:
                    yield scene
                except Exception:
                    for log in scene.logs:
                        say(f"{log.name} ends with:\n{tail(log)}")
                    raise
        finally:
            with psycopg.connect(self.addresses.database_url, autocommit=True) as conn:
                conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
            topics = [
                topic for topic in self.admin.list_topics(timeout=20).topics if topic.startswith(prefix)
            ]
            for deleted in self.admin.delete_topics(topics).values():
                deleted.result(20)


@dataclass
class Scene:
    """One run's database and topics. `conn` is the benchmark's own session, in autocommit."""

    stage: Stage
    config: Config
    conn: psycopg.Connection[tuple[object, ...]]
    logs: list[Path] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)  # more of the environment

    @property
    def topic(self) -> str:
        return self.config.prefix + TOPIC

    @property
    def partitions(self) -> int:
        return self.stage.project.topics.topics[TOPIC].partitions

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that works in this scene."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("STREAM_")},
            "KAFKA_BOOTSTRAP_SERVERS": self.config.bootstrap_servers,
            "DATABASE_URL": self.config.database_url,
            "STREAM_PREFIX": self.config.prefix,
            "STREAM_PROJECT": str(self.config.project),
            **self.settings,
        }

    def fill_outbox(self, events: Sequence[Placed]) -> float:
        """Rows in one transaction; returns `time.monotonic()` just before they could be seen.

        A lock in every shard is held meanwhile: no id may be taken without one of that class (stream/floors.py).
        """
        with psycopg.connect(self.config.database_url) as conn:
            conn.execute(
                "select pg_advisory_xact_lock(%s, shard << 24) from generate_series(0, %s - 1) shard",
                [LOCK_APPEND, SHARDS],
            )
            copy = "copy stream.outbox (topic, key, event_id, type, time, payload) from stdin (format binary)"
            with conn.cursor().copy(copy) as rows:
                rows.set_types(["text", "bytea", "uuid", "text", "timestamptz", "bytea"])
                for event in events:
                    rows.write_row((TOPIC, event.key, event.id, TYPE, event.time, event.payload))
            begun = time.monotonic()
            conn.commit()
        return begun

    def fill_topic(self, events: Sequence[Placed]) -> None:
        """Records as the relay would have published them."""
        producer = self.stage.producer
        errors: list[object] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                errors.append(error)

        for event in events:
            headers = cloud_headers(str(event.id), TYPE, event.time)
            producer.produce(self.topic, event.payload, event.key, headers=headers, on_delivery=delivered)
            producer.poll(0)
        producer.flush()
        assert not errors, errors[0]

    def published(self) -> int:
        """Records in the topic: the sum of its end offsets."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self.topic, n): latest for n in range(self.partitions)}
        while True:
            try:
                return sum(
                    answer.result(20).offset for answer in self.stage.admin.list_offsets(asked).values()
                )
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:  # of a topic just made
                    raise

    def outbox_rows(self) -> int:
        return self.count("select count(*) from stream.outbox")

    def count(self, statement: str) -> int:
        [(count,)] = self.conn.execute(statement.encode()).fetchall()
        assert isinstance(count, int)
        return count
