"""Rejected rows: what the relay set aside is published again, or given up, by a person."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg import errors as pg

from stream.database import Connection, query
from stream.errors import Refused
from stream.keys import shown_key
from stream.operators import write_action
from stream.views import RejectedRow, rejected_rows

LOCK_TIMEOUT = "10s"


@dataclass(frozen=True)
class RejectedKey:
    """The rejected rows of one key; the first is the cause, the others stand behind it."""

    topic: str
    key: bytes | None
    rows: Sequence[RejectedRow]

    @property
    def name(self) -> str:
        """As people read it: `orders 536365`."""
        return f"{self.topic} {shown_key(self.key) or '(no key)'}"

    def command(self, name: str) -> str:
        """The command that acts on this key; on its first row where there is no key."""
        if self.key is None:
            return f"stream outbox discard --id {self.rows[0].id} --reason '...'"
        end = " --reason '...'" if name == "discard" else ""
        chosen = f"--topic {shlex.quote(self.topic)} --key {shlex.quote(shown_key(self.key) or '')}"
        return f"stream outbox {name} {chosen}{end}"


def by_key(rows: Iterable[RejectedRow]) -> list[RejectedKey]:
    """The rows by topic and key, keys in the order of their first row."""
    groups: dict[tuple[str, bytes | None], list[RejectedRow]] = {}
    for row in rows:
        groups.setdefault((row.topic, row.key), []).append(row)
    return [RejectedKey(topic, key, rows) for (topic, key), rows in groups.items()]


def retry(connection: Connection, key: RejectedKey) -> int:
    """Give a key's rejected and unpublished rows back to the relay, in their old order; returns how many.

    Takes the key's append lock. Raises Refused where a transaction that appends to the key holds it for 10 s.
    """
    with connection.transaction():
        count = _back_to_the_outbox(connection, key)
        write_action(connection, "outbox retry", key.name, f"{count} rows")
    return count


def discard(connection: Connection, key: RejectedKey, reason: str) -> list[int]:
    """Delete these rows of a key: their events are never published. Returns the ids of those that were there.

    Once none is left the key is free: its unpublished rows get fresh ids, for a relay may have read them as
    standing behind a rejected one, and would set those aside. Raises Refused as `retry` does.
    """
    with connection.transaction():
        cursor = connection.execute(query("discard_rejected"), {"ids": [row.id for row in key.rows]})
        gone = sorted(id for (id,) in cursor)
        events = [
            {"id": row.id, "type": row.type, "event_id": str(row.event_id), "error": row.error}
            for row in key.rows
            if row.id in gone
        ]
        if key.key is not None and not rejected_rows(connection, topic=key.topic, keys=[key.key]):
            _back_to_the_outbox(connection, key)
        write_action(
            connection,
            "outbox discard",
            key.name,
            f"{len(gone)} rows",
            parameters={"rows": events},
            reason=reason,
        )
    return gone


def _back_to_the_outbox(connection: Connection, key: RejectedKey) -> int:
    connection.execute("select set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
    try:
        cursor = connection.execute("select stream.retry_rejected(%s, %s)", [key.topic, key.key])
    except pg.LockNotAvailable:
        reason = f"a transaction that appends to this key did not end within {LOCK_TIMEOUT}"
        raise Refused(f"{key.name}: {reason}", hint=key.command("retry")) from None
    [(count,)] = cursor.fetchall()
    return int(count)
