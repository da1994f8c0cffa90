"""Growing: more partitions for a topic. Most keys move to another one then, and order per key ends at a partition.

So it is refused while any group has something of the topic left to do: what a group has not read, in one partition, and
what comes next of the same key, in another, would run side by side. What is written while it happens may still pass
each other: that is the one time at which the order of a key is not promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stream import overview, parked
from stream.config import Config
from stream.database import Connection
from stream.errors import Refused, StreamError, UsageError
from stream.groups import suggestion
from stream.kafka import admin
from stream.kafka.lag import offsets
from stream.operators import write_action
from stream.project import Project
from stream.topics import OURS
from stream.views import outbox_status

ACTION = "topics grow"


@dataclass(frozen=True, slots=True)
class Reader:
    """A group that has begun to read the topic, and what it has left to do there: records, None where it has committed
    nothing; and parked keys."""

    group: str
    lag: int | None
    parked: int

    @property
    def drained(self) -> bool:
        return self.lag == 0 and not self.parked

    @property
    def left(self) -> str:
        """In words."""
        records = "nothing committed" if self.lag is None else f"{self.lag} records"
        return f"{self.group} ({records}, {self.parked} parked keys)"


@dataclass(frozen=True, slots=True)
class Growth:
    """A topic is to have `to` partitions instead of `from_`. `declared`: in topics.toml, None where it is not there.
    `relays`: how many are at work."""

    topic: str
    from_: int
    to: int
    declared: int | None
    relays: int
    readers: Sequence[Reader]

    def check(self) -> None:
        """Raise Refused naming the groups that are not drained."""
        left = [reader for reader in self.readers if not reader.drained]
        if left:
            names = ", ".join(reader.left for reader in left)
            raise Refused(
                f"{self.topic} is not grown before its groups are drained, or keys that move would be out of order:"
                f" {names}",
                hint=f"stream groups describe {left[0].group}",
            )


def plan(config: Config, connection: Connection, project: Project, topic: str, partitions: int) -> Growth:
    """What growing would do, and who is in its way. Raises UsageError where it cannot be done at all."""
    counts = admin.partition_counts(config)
    if topic not in counts:
        raise UsageError(f"there is no topic {topic!r}{suggestion(topic, counts)}", hint="stream migrate")
    if partitions <= counts[topic]:
        raise UsageError(
            f"--partitions: expected more than the {counts[topic]} that {topic} has, got {partitions};"
            " a topic never shrinks"
        )
    try:
        declared = project.topics.topics.get(topic)
    except StreamError:  # topics.toml cannot be read: the broker has the topic all the same
        declared = None
    return Growth(
        topic,
        counts[topic],
        partitions,
        None if declared is None else declared.partitions,
        len(outbox_status(connection).relays),
        [] if topic.endswith(OURS) else _readers(config, connection, project, topic),
    )


def grow(config: Config, connection: Connection, growth: Growth, reason: str | None) -> None:
    """Do it, and write it down. Raises Refused where a group is not drained."""
    growth.check()
    with connection.transaction():
        parameters = {"from": growth.from_, "to": growth.to}
        write_action(connection, ACTION, growth.topic, "grown", parameters=parameters, reason=reason)
        admin.grow_topic(config, growth.topic, growth.to)


def _readers(config: Config, connection: Connection, project: Project, topic: str) -> list[Reader]:
    known = overview.known_groups(connection, project)
    names = [name for name in known.names if topic in known.met(name)]
    behind = offsets(config, {name: [topic] for name in names})
    readers = []
    for name in names:
        lags = [one.lag for one in behind[name].values()]
        unknown = any(lag is None for lag in lags)
        waiting = len(parked.keys(connection, group=name, topic=topic))
        readers.append(Reader(name, None if unknown else sum(lag or 0 for lag in lags), waiting))
    return readers
