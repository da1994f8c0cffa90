"""What the database remembers of a group: where it began, where it has been, who reads what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from stream import database, reapplies
from stream.database import Connection, query
from stream.discovery import discover
from stream.epochs import Range
from stream.errors import GroupError, StreamError
from stream.offsets import Partition
from stream.project import Project


@dataclass(frozen=True, slots=True)
class Memory:
    """`planned`: the start offsets that the group's first start fixed. `seen`: partitions it has started on.
    `topic_ids`: as they were when each topic was first met. `history`: the ends of the logs at that moment.
    `reapplied`: the ranges of its history that are run again, each with its epoch."""

    planned: Mapping[Partition, int]
    seen: frozenset[Partition]
    topic_ids: Mapping[str, str]
    ledger_pruned_before: datetime | None
    history: Mapping[Partition, int] = field(default_factory=dict)
    reapplied: Sequence[tuple[int, Range]] = ()

    def has_met(self, topic: str) -> bool:
        return topic in self.topic_ids


def require_known(connection: Connection, project: Project, group: str | None) -> None:
    """Raise GroupError where a group is named that neither the database nor the project knows.

    The project is asked last: its handlers may need libraries that are not here.
    """
    if group is None:
        return
    known = {name for (name,) in connection.execute(query("known_groups"))}
    if group in known:
        return
    unread = ""
    try:
        known |= discover(project).keys()
    except StreamError as error:
        unread = f" (those of consumers/ could not be read: {error.message.splitlines()[0]})"
    if group not in known:
        names = ", ".join(sorted(known)) or "none"
        raise GroupError(f"unknown group {group!r}; known are {names}{unread}", hint="stream groups list")


class GroupState:
    """Reads and writes on a connection of its own each time: this is rare, and survives any restart between."""

    def __init__(self, database_url: str, group: str, worker: str) -> None:
        self._url = database_url
        self._group = group
        self._worker = worker

    def load(self) -> Memory:
        with self._connect() as connection:
            row = connection.execute(query("group_state"), [self._group]).fetchone()
            ranges = connection.execute(query("reapplied_ranges"), [self._group]).fetchall()
        planned, seen, ids, pruned, history = row or ({}, {}, {}, None, {})
        return Memory(
            by_partition(planned),
            frozenset((topic, p) for topic, partitions in seen.items() for p in partitions),
            ids,
            pruned,
            by_partition(history),
            [(epoch, Range(*columns)) for epoch, *columns in ranges],
        )

    def begin(
        self,
        policy: str,
        starts: Mapping[Partition, int],
        ends: Mapping[Partition, int],
        topic_ids: Mapping[str, str],
    ) -> Memory:
        """Fix where the group begins on topics it meets for the first time, and what is history to it: all before these
        ends. The first member to say it is right."""
        with self._connect() as connection:
            connection.execute(
                query("group_begin"),
                {
                    "group": self._group,
                    "policy": policy,
                    "offsets": Jsonb(_by_topic(topic_ids, starts)),
                    "ends": Jsonb(_by_topic(topic_ids, ends)),
                    "ids": Jsonb(dict(topic_ids)),
                },
            )
        return self.load()

    def opened(
        self,
        partitions: Iterable[Partition],
        gaps: Mapping[Partition, tuple[int, int]],
        grown: Iterable[Partition] = (),
    ) -> set[Partition]:
        """These partitions were started on, and are read by this worker; these ranges were never read; these their
        topics got after the group had begun.

        Returns those whose last owner died: it never released them.
        """
        names = self._columns(partitions)
        with self._connect() as connection:
            unreleased = {(topic, number) for topic, number in connection.execute(query("unreleased"), names)}
            connection.execute(query("partitions_seen"), names)
            connection.execute(query("assign"), names)
            for (topic, partition), (low, high) in gaps.items():
                connection.execute(query("gap"), [self._group, topic, partition, low, high])
                # What made way for a range that is run again will not be read there any more.
                reapplies.pass_over(connection, self._group, topic, partition, low, high)
            connection.execute(query("grown"), self._columns(grown))
        return unreleased

    def set_limits(self, most_bytes: int, nudge_s: float) -> None:
        """What a copy in the topics of retries and dead letters may weigh; how long a retry may be overdue."""
        arguments = {"group": self._group, "bytes": most_bytes, "nudge_s": nudge_s}
        with self._connect() as connection:
            connection.execute(query("failing_limits"), arguments)

    def parked_keys(self, limit: int) -> list[tuple[bytes | None, int, bool]]:
        """(key, partition, held) of keys that wait for a retry or an operator, `limit` at most."""
        with self._connect() as connection:
            return connection.execute(query("parked_keys"), {"group": self._group, "limit": limit}).fetchall()

    def released(self, partitions: Iterable[Partition]) -> None:
        """This worker is done with these partitions, in good order."""
        with self._connect() as connection:
            connection.execute(query("release"), self._columns(partitions))

    def made_way(self, rewind: int) -> None:
        """This process is not in the broker's group any more: the rewind may move its offsets."""
        with self._connect() as connection:
            connection.execute(
                query("made_way"), {"group": self._group, "worker": self._worker, "rewind": rewind}
            )

    def settle_rewinds(self, committed: Callable[[], Mapping[Partition, int]]) -> None:
        """Make true what became of a rewind whose command was killed; before anything is read."""
        with self._connect() as connection:
            reapplies.settle(connection, self._group, committed)

    def rewind_result(self, rewind: int) -> str | None:
        """What became of it; None where its command goes on, although nobody waits for it any more."""
        with self._connect() as connection:
            row = connection.execute(query("rewind_result"), {"rewind": rewind}).fetchone()
        return None if row is None else row[0]

    def _columns(self, partitions: Iterable[Partition]) -> dict[str, Any]:
        listed = list(partitions)
        return {
            "group": self._group,
            "worker": self._worker,
            "topics": [topic for topic, _ in listed],
            "partitions": [partition for _, partition in listed],
        }

    def _connect(self) -> Connection:
        return database.connect(
            self._url,
            application_name=f"stream-{self._group}",
            settings={"statement_timeout": "10s", "lock_timeout": "5s"},
        )


def by_partition(offsets: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    """Offsets as the database has them: topic -> partition -> offset."""
    return {(topic, int(p)): offset for topic, of_topic in offsets.items() for p, offset in of_topic.items()}


def _by_topic(topics: Iterable[str], offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {topic: {} for topic in topics}
    for (topic, partition), offset in offsets.items():
        found[topic][str(partition)] = offset
    return found
