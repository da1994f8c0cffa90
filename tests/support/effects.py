"""A small project whose groups keep an effect log, for spawned commands; and load for it, past outbox and relay."""

from __future__ import annotations

import random
import shutil
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from stream.config import Config
from stream.events import cloud_headers
from stream.project import Project
from tests.support.processes import Command, run
from tests.support.small import make_project
from tests.support.topics import ordered_producer
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]

# No unique key: what is applied twice is there twice.
TABLE = """
create table if not exists effect (
    seq bigint generated always as identity, consumer text, key text, n bigint, event_id uuid, worker int
);
"""
GROUP = """\
import os
import random
import time

from stream import ConsumerGroup, PermanentError, TransientError

group = ConsumerGroup("{name}", topics=["things"]{options})


@group.on("Happened")
def handle(event, ctx):
    {before}
    ctx.db.execute(
        "insert into effect (consumer, key, n, event_id, worker) values (%s, %s, %s, %s, %s)",
        ["{name}", event.key, event.data["n"], event.id, os.getpid()],
    )
    {after}
"""


def effect_project(root: Path, *groups: str, **options: Any) -> Project:
    """The small project with a group of each name (`testers` where none is given), each with the log's table."""
    project = make_project(root)
    for name in groups or ("testers",):
        write_group(project, name, **options)
    return project


def order_project(root: Path, **options: Any) -> Project:
    """The real schemas and topics, and a group `testers` that logs of each order how many lines it has."""
    shutil.copytree(ROOT / "schemas", root / "schemas")
    (root / "consumers").mkdir()
    project = Project(root)
    group = write_group(project, **options)
    text = group.read_text().replace('"things"', '"orders"').replace('"Happened"', '"OrderPlaced"')
    group.write_text(text.replace('event.data["n"]', "len(event.data['lines'])"))
    return project


def write_group(
    project: Project, name: str = "testers", *, before: str = "pass", after: str = "pass", **options: Any
) -> Path:
    """A file of consumers/: a group whose handler writes the log, with a statement `before` and one `after` it."""
    given = {"start": "beginning", **options}
    text = "".join(f", {option}={value!r}" for option, value in given.items())
    path = project.root / "consumers" / f"{name}.py"
    path.write_text(GROUP.format(name=name, options=text, before=before, after=after))
    path.with_suffix(".sql").write_text(TABLE)
    return path


def migrate(project: Project, env: Mapping[str, str]) -> None:
    command = run("migrate", env=env, cwd=project.root)
    assert command.wait() == 0, command.stderr


def consume(
    project: Project, env: Mapping[str, str], *groups: str, failpoints: str = "", at_end: bool = False
) -> Command:
    """Start `stream consume`; it ends by itself with `at_end`."""
    options = [f"--group={group}" for group in groups or ("testers",)] + ["--exit-at-end"] * at_end
    env = {**env, "STREAM_FAILPOINTS": failpoints} if failpoints else env
    return Command("consume", *options, env=env, cwd=project.root)


class Effects:
    """Reads the log, on a connection of its own that survives a restart of the server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._conn: psycopg.Connection[Any] | None = None

    def fetch(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        try:
            return self._connection().execute(query.encode(), parameters).fetchall()
        except psycopg.OperationalError:  # the server was restarted, or all connections ended
            return self._connection().execute(query.encode(), parameters).fetchall()

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = psycopg.connect(self._url, autocommit=True)
        return self._conn

    def count(self, consumer: str = "testers") -> int:
        return int(self.fetch("select count(*) from effect where consumer = %s", consumer)[0][0])

    def by_key(self, consumer: str = "testers") -> dict[str, list[int]]:
        """The numbers of each key in the order they were applied."""
        found: dict[str, list[int]] = defaultdict(list)
        for key, n in self.fetch("select key, n from effect where consumer = %s order by seq", consumer):
            found[key].append(n)
        return dict(found)

    def check(self, expected: Mapping[str, list[int]], consumer: str = "testers") -> None:
        """Fail unless all of it was applied, once, in order per key, and nothing else."""
        found = self.by_key(consumer)
        wrong = [
            f"{key}: {sorted(set(expected.get(key, [])) - set(found.get(key, [])))} lost,"
            f" {sorted(n for n, times in Counter(found.get(key, [])).items() if times > 1)} doubled,"
            f" applied {found.get(key)}"
            for key in sorted(expected.keys() | found.keys())
            if found.get(key, []) != expected.get(key, [])
        ]
        assert not wrong, f"{consumer}: {len(wrong)} keys are wrong:\n" + "\n".join(wrong[:3])

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()


def committed(config: Config, topic: str = "things", group: str = "testers") -> dict[int, int]:
    """The group's committed offset of each partition of the topic; without those that have none."""
    consumer = Consumer({"bootstrap.servers": config.bootstrap_servers, "group.id": config.prefix + group})
    try:
        name = config.prefix + topic
        partitions = consumer.list_topics(name, timeout=10).topics[name].partitions
        found = consumer.committed([TopicPartition(name, p) for p in partitions], timeout=10)
    finally:
        consumer.close()
    return {partition.partition: partition.offset for partition in found if partition.offset >= 0}


class Load:
    """Events of several keys, numbered within their key, published until the end of the `with`.

    `burst` of them at once, then one after the other, `pause_s` seconds apart. Some come twice in a row, as from a
    relay that was killed between acknowledgement and delete.
    """

    def __init__(self, config: Config, project: Project, *, burst: int = 0, pause_s: float = 0.015) -> None:
        self._topic = config.prefix + "things"
        self._project = project
        self._keys = [f"k{n}" for n in range(20)]
        self._burst, self._pause_s = burst, pause_s
        self._producer = ordered_producer(config)
        self._stopping = threading.Event()
        self._failed: list[KafkaError] = []
        self._places: dict[str, list[tuple[int, int]]] = {key: [] for key in self._keys}
        self._thread = threading.Thread(target=self._run)
        self.published: dict[str, list[int]] = {key: [] for key in self._keys}
        self.doubles = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def count(self) -> int:
        return sum(map(len, self.published.values()))

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self._places.values()))

    def wait(self, count: int) -> None:
        """Until so many more are in the topic: a new topic's leader may take its first ones late."""
        before = self.acknowledged
        until(lambda: self.acknowledged >= before + count, 30, "the load goes on")

    def stop(self) -> None:
        """Publish no more; what was published is in the topic."""
        self._stopping.set()
        self._thread.join(30)
        assert self._producer.flush(30) == 0 and not self._failed, self._failed
        for key, places in self._places.items():
            found = [n for _, n in sorted(places)]
            assert found == sorted(found), f"the topic has {key} in another order than published: {found}"

    def _run(self) -> None:
        dice = random.Random(1)
        while not self._stopping.wait(0 if self.count < self._burst else self._pause_s):
            key = dice.choice(self._keys)
            numbers = self.published[key]
            id, n = uuid.uuid4(), len(numbers) + 1
            self._publish(key, id, n)
            if dice.random() < 0.05:
                self._publish(key, id, n)
                self.doubles += 1
            numbers.append(n)

    def _publish(self, key: str, id: uuid.UUID, n: int) -> None:
        self._producer.produce(
            self._topic,
            self._project.codec.encode("Happened", {"n": n}),
            key.encode(),
            headers=cloud_headers(str(id), "Happened", datetime.now(UTC)),  # type: ignore[arg-type]  # a list
            on_delivery=lambda error, message: (
                self._failed.append(error) if error else self._places[key].append((message.offset(), n))
            ),
        )
        self._producer.poll(0)


def shorten_session(config: Config, group: str = "testers") -> None:
    """Let the broker give up members of a group that is running after 2 s without a sign of life, not 6."""
    admin = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in (
            ("consumer.session.timeout.ms", "2000"),
            ("consumer.heartbeat.interval.ms", "500"),
        )
    ]
    resource = ConfigResource(ResourceType.GROUP, config.prefix + group, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(10)
