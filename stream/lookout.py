"""Lookout: what a process sees of its group and writes down, for people. A thread of its own, beside the loop.

Every few seconds: which handlers have been at work for a while. Of all processes of the group one looks at the broker,
how far the group is on every partition (samples.py), and says where a topic is gone. Nothing waits for it, and nothing
of the group's work depends on it.
"""

from __future__ import annotations

import threading

import structlog

from stream import database, samples
from stream.config import Config
from stream.database import Connection, query
from stream.groups import ConsumerGroup
from stream.kafka import lag
from stream.topics import retry_topic
from stream.watchdog import Watchdog

log = structlog.get_logger("stream.lookout")

TICK_S = 2.0


class Lookout:
    """One group's, in one process."""

    def __init__(self, config: Config, group: ConsumerGroup, worker: str, watchdog: Watchdog) -> None:
        self._config = config
        self._group = group.name
        self._topics = (*group.topics, retry_topic(group.name))
        self._worker = worker
        self._watchdog = watchdog
        self._said: object = []  # of the handlers, in the database
        self._missing: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{worker}-lookout", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2)

    def _run(self) -> None:
        connection: Connection | None = None
        while True:
            try:
                connection = connection or self._connect()
                self._look(connection)
            except Exception as error:  # noqa: BLE001  # it is for people to look at: nothing ends with it
                log.info("lookout.waiting", group=self._group, error=f"{type(error).__name__}: {error}")
                if connection is not None:
                    connection.close()
                connection = None
            if self._stopping.wait(TICK_S):
                break
        if connection is not None:
            connection.close()

    def _look(self, connection: Connection) -> None:
        self._write_handling(connection)
        at = samples.may_sample(connection, self._group)
        if at is not None:
            found = lag.offsets(self._config, {self._group: self._topics})[self._group]
            self._tell_missing({topic for topic, _ in found})
            if found:
                places = {partition: (one.committed, one.end) for partition, one in found.items()}
                samples.write(connection, self._group, at, places)

    def _tell_missing(self, there: set[str]) -> None:
        missing = set(self._topics) - there
        for topic in sorted(missing - self._missing):
            log.error(
                "topic.missing",
                group=self._group,
                topic=topic,
                meaning="the topic was deleted; the group waits for it, and stops if it is created anew",
                hint=f"stream groups describe {self._group}",
            )
        self._missing = missing

    def _write_handling(self, connection: Connection) -> None:
        handling = self._watchdog.in_hand()
        now = [event.id for event, _ in handling]
        if now == self._said:
            return
        connection.execute(
            query("handling"),
            {
                "group": self._group,
                "worker": self._worker,
                "topics": [event.topic for event, _ in handling],
                "partitions": [event.partition for event, _ in handling],
                "offsets": [event.offset for event, _ in handling],
                "keys": [event.key for event, _ in handling],
                "ids": [event.id for event, _ in handling],
                "ages": [seconds for _, seconds in handling],
            },
        )
        self._said = now

    def _connect(self) -> Connection:
        self._said = None  # of who was here before
        return database.connect(
            self._config.database_url,
            application_name=f"stream-{self._group}-lookout",
            autocommit=True,
            settings={"statement_timeout": "10s", "lock_timeout": "5s"},
        )
