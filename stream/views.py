"""Read models: what commands show, as values. Reading changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from stream.database import LOCK_MEMBER, LOCK_SHARD, Connection, query
from stream.errors import StreamError
from stream.keys import shown_key
from stream.schemas import AvroCodec, to_json


@dataclass(frozen=True)
class SickTopic:
    """A topic whose rows the relay cannot publish now."""

    topic: str
    reason: str
    since: datetime


@dataclass(frozen=True)
class RelaySession:
    """A relay at work. `pid` is its database session's, `client` the address it comes from, `shards` of 64."""

    pid: int
    client: str | None
    shards: int
    since: datetime | None


@dataclass(frozen=True)
class OutboxStatus:
    """Rows that wait for their topic, for their time, and those set aside."""

    pending: int
    oldest_seconds: float | None
    scheduled: int
    rejected: int
    sick_topics: Sequence[SickTopic]
    relays: Sequence[RelaySession]


@dataclass(frozen=True)
class WaitingRow:
    """An outbox row that is not published yet; `data` is None where its bytes cannot be decoded."""

    id: int
    topic: str
    key: bytes | None
    type: str
    event_id: UUID
    time: datetime
    age_seconds: float
    data: Any


@dataclass(frozen=True)
class RejectedRow:
    """A row that was set aside. `reason`: invalid, refused (by the broker), or behind such a row of its key."""

    id: int
    topic: str
    key: bytes | None
    type: str
    event_id: UUID
    reason: str
    error: str
    rejected_at: datetime
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that retention took before the group read them, from the first to before `to_offset`."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    at: datetime


@dataclass(frozen=True, slots=True)
class GrownPartition:
    """A partition that a topic got after the group had begun to read it; read since `at`. `by`: who grew the topic with
    `stream topics grow`; None: somebody did with another tool, and whether the group was drained is not known."""

    group: str
    topic: str
    partition: int
    at: datetime
    by: str | None


def outbox_status(connection: Connection) -> OutboxStatus:
    """The outbox in numbers, sick topics and relays."""
    [(pending, oldest_seconds, scheduled, rejected)] = connection.execute(query("outbox_status"))
    with connection.cursor(row_factory=class_row(SickTopic)) as cursor:
        sick = cursor.execute("select topic, reason, since from stream.sick_topic order by topic").fetchall()
    classes = {"member_class": LOCK_MEMBER, "shard_class": LOCK_SHARD}
    with connection.cursor(row_factory=class_row(RelaySession)) as cursor:
        relays = cursor.execute(query("relays"), classes).fetchall()
    return OutboxStatus(pending, oldest_seconds, scheduled, rejected, sick, relays)


def waiting_rows(
    connection: Connection, codec: AvroCodec, *, topic: str | None, key: bytes | None, limit: int
) -> list[WaitingRow]:
    """The oldest rows that wait for their topic, `limit` at most."""
    rows = connection.execute(query("outbox_peek"), {"topic": topic, "key": key, "limit": limit})
    return [
        WaitingRow(
            id, of, its_key, type, event_id, time, age, data if payload is None else _decoded(codec, payload)
        )
        for id, of, its_key, type, event_id, time, age, payload, data in rows
    ]


def rejected_rows(
    connection: Connection,
    *,
    topic: str | None = None,
    keys: Sequence[bytes] = (),
    ids: Sequence[int] = (),
) -> list[RejectedRow]:
    """The rejected rows that fit everything given, in order of id; of a key that is their old order."""
    chosen = {"topic": topic, "keys": list(keys) or None, "ids": list(ids) or None}
    with connection.cursor(row_factory=class_row(RejectedRow)) as cursor:
        return cursor.execute(query("outbox_rejected"), chosen).fetchall()


def gaps(connection: Connection, group: str | None = None) -> list[Gap]:
    """What retention took of the group's, or of all groups', before it was read; the newest first."""
    with connection.cursor(row_factory=class_row(Gap)) as cursor:
        return cursor.execute(query("gaps"), {"group": group}).fetchall()


def grown_partitions(connection: Connection, group: str | None = None) -> list[GrownPartition]:
    """Partitions that came while the group, or any group, was reading their topic; the newest first."""
    with connection.cursor(row_factory=class_row(GrownPartition)) as cursor:
        return cursor.execute(query("grown_partitions"), {"group": group}).fetchall()


def as_json(value: object) -> Any:
    """What `json.dumps` takes: dataclasses as objects, times as RFC 3339 in UTC, keys and bytes as they are shown."""
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): as_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, bytes):
        return shown_key(value)
    return str(value) if isinstance(value, UUID) else value


def rfc3339(time: datetime) -> str:
    """`2026-08-02T14:03:11.120000Z`."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def clock(time: datetime) -> str:
    """`2026-08-02T14:03:11.120Z`: as tables show it, and as `--since` and `--until` take it."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _decoded(codec: AvroCodec, payload: bytes) -> Any:
    try:
        return to_json(codec.decode(payload)[1])
    except StreamError:
        return None
