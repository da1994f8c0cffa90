"""Adopting: a group goes on with a topic that was deleted and created again. Where, only a person can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from stream.config import Config
from stream.database import Connection, query
from stream.errors import Refused
from stream.kafka import positions
from stream.kafka.admin import topic_ids
from stream.operators import write_action
from stream.overview import Known


@dataclass(frozen=True, slots=True)
class Adopted:
    """Where the group begins on each partition of the new topic, how many records that leaves it, and how many events
    of the old topic are still parked."""

    offsets: Mapping[int, int]
    records: int
    parked: int


def adopt(
    config: Config,
    connection: Connection,
    known: Known,
    group: str,
    topic: str,
    *,
    earliest: bool,
    reason: str | None,
) -> Adopted:
    """Begin at the new topic's first records, or at its ends. What the ledger knows stays known: an event that comes
    again under its old id is not applied again.

    Raises Refused where the topic is the one the group knows, or is not there, or the group has members.
    """
    look = f"stream groups describe {group}"
    met = known.met(group)
    if topic not in met:
        raise Refused(f"group {group} has not begun to read {topic!r}", hint=look)
    id = topic_ids(config, [topic]).get(topic)
    if id is None:
        raise Refused(f"topic {topic} does not exist", hint="stream migrate")
    if id == met[topic]:
        raise Refused(
            f"topic {topic} is the one that group {group} reads: nothing is to be adopted", hint=look
        )
    if known.rows[group]["members"]:
        raise Refused(f"group {group} has members; stop its processes first", hint=look)
    bounds = positions.bounds(config, [topic])
    offsets = {number: low if earliest else high for (_, number), (low, high) in bounds.items()}
    ends = {number: high for (_, number), (_, high) in bounds.items()}
    # The broker first: with the offsets alone the group still refuses to start, and this can be done again.
    positions.move_offsets(config, group, {(topic, number): offset for number, offset in offsets.items()})
    with connection.transaction():
        arguments = {"group": group, "topic": topic, "id": id, "offsets": Jsonb(offsets), "ends": Jsonb(ends)}
        [(lanes,)] = connection.execute(query("adopt_topic"), arguments)
        connection.execute(query("leave_live_heads"), {"group": group, "lanes": lanes})
        [(parked,)] = connection.execute(query("parked_of_topic"), {"group": group, "topic": topic})
        parameters = {"topic": topic, "to": "earliest" if earliest else "latest", "offsets": offsets}
        write_action(connection, "groups adopt", group, "adopted", parameters=parameters, reason=reason)
    left = sum(high - offsets[number] for (_, number), (_, high) in bounds.items())
    return Adopted(offsets, left, int(parked))
