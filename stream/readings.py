"""Readings: what a process asks broker and database now and then, beside its loops, to show how much waits.

Each has connections of its own and a limit to how long it waits; what does not answer is noted, and its numbers are
gone until it does: old ones would look like new ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psycopg
import structlog

from stream import database
from stream.config import Config
from stream.database import Connection, query
from stream.errors import Unreachable
from stream.kafka.admin import check_reachable
from stream.kafka.lag import PartitionLag, lags_behind
from stream.offsets import Partition
from stream.views import OutboxStatus, outbox_status
from stream.vitals import GroupSigns

log = structlog.get_logger("stream.readings")

READ_EVERY_S = 5.0
BROKER, DATABASE = "broker", "database"


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits of one group, in records and keys; times in Unix seconds, None where nothing waits."""

    parked: int
    waiting_keys: int
    held_keys: int
    parked_since: float | None
    letters: int
    letters_since: float | None


@dataclass(frozen=True, slots=True)
class Readings:
    """What was read last, at `at` (Unix time; None before the first time). `down`: who did not answer, and what was
    said instead."""

    at: float | None = None
    lags: Mapping[str, Mapping[Partition, PartitionLag]] = field(default_factory=dict)  # by group
    backlogs: Mapping[str, Backlog] = field(default_factory=dict)  # by group
    outbox: OutboxStatus | None = None
    down: Mapping[str, str] = field(default_factory=dict)

    def lag(self, group: str) -> int:
        """Records before this process's part of the group."""
        return sum(one.lag or 0 for one in self.lags.get(group, {}).values())


class SlowClock:
    """Takes readings now and then, in a thread of its own. `last` may be taken by any."""

    def __init__(
        self,
        config: Config,
        signs: Callable[[], Sequence[GroupSigns]],
        *,
        outbox: bool,
        every_s: float = READ_EVERY_S,
    ) -> None:
        self.last = Readings()
        self._config = config
        self._signs = signs
        self._outbox = outbox
        self._every_s = every_s
        self._connection: Connection | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="readings", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It may be waiting for a broker that is down: it is not waited for."""
        self._stopping.set()

    def read(self) -> Readings:
        """Ask both once."""
        signs = self._signs()
        down: dict[str, str] = {}
        lags: dict[str, Mapping[Partition, PartitionLag]] = {}
        backlogs: dict[str, Backlog] = {}
        outbox = None
        try:
            lags = self._lags(signs)
        except Unreachable as error:
            down[BROKER] = error.message
        try:
            connection = self._connected()
            for one in signs:
                [row] = connection.execute(query("backlog"), {"group": one.group})
                backlogs[one.group] = Backlog(*row)
            if self._outbox:
                outbox = outbox_status(connection)
        except Unreachable as error:
            down[DATABASE] = error.message
        except psycopg.Error as error:
            self._disconnect()
            down[DATABASE] = database.unreachable(self._config.database_url, error).message
        return Readings(time.time(), lags, backlogs, outbox, down)

    def _lags(self, signs: Sequence[GroupSigns]) -> dict[str, Mapping[Partition, PartitionLag]]:
        check_reachable(self._config)
        return {one.group: lags_behind(self._config, one.offsets) for one in signs if one.offsets}

    def _run(self) -> None:
        while not self._stopping.is_set():
            before = self.last.down
            try:
                self.last = self.read()
            except Exception as error:  # noqa: BLE001  # without this thread, what was read last would stand for ever
                self.last = Readings(time.time(), down={"readings": f"{type(error).__name__}: {error}"})
            for name in self.last.down.keys() - before.keys():
                log.warning("metrics.waiting", dependency=name, error=self.last.down[name])
            self._stopping.wait(self._every_s)
        self._disconnect()

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = database.connect(
                self._config.database_url,
                application_name="stream-metrics",
                autocommit=True,
                settings={"statement_timeout": "5s", "lock_timeout": "1s"},
            )
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
