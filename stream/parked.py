"""Parked keys: what waits for its next try or for a person, and what a person can do about it.

retry     a waiting key is tried now, and not at its time
release   a held key goes on without its dead event, as in a group with on_dead="release"; its letter stays open
discard   the first event of a key is given up for good, and the key goes on
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from stream.database import Connection, query
from stream.errors import Refused
from stream.keys import shown_key
from stream.operators import alone, leave_live_head, who, write_action
from stream.parking import lane_number
from stream.views import rfc3339


@dataclass(frozen=True, slots=True)
class ParkedKey:
    """A key whose events wait, and its head: the event that the others stand behind. Records without a key wait for
    their partition.

    `held`: the head is dead, and `letter` its open letter. `since`: its first failure. `due_at`: its next try.
    """

    group: str
    topic: str
    key: bytes | None
    partition: int
    offset: int
    event_id: UUID
    epoch: int
    type: str | None
    held: bool
    followers: int
    attempts: int
    since: datetime
    last_failed_at: datetime | None
    due_at: datetime | None
    error_class: str | None
    error_message: str | None
    letter: int | None

    @property
    def state(self) -> str:
        return "held" if self.held else "waiting"

    @property
    def name(self) -> str:
        """As people read it: `invoicing, orders 536365`."""
        return f"{self.group}, {self.topic} {shown_key(self.key) or f'(no key, partition {self.partition})'}"

    @property
    def position(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"

    @property
    def list_command(self) -> str:
        """The command that shows the group's keys as they are now."""
        return f"stream parked list --group {self.group}"

    def command(self, name: str) -> str:
        """The command that acts on this key."""
        chosen = ["--group", self.group, "--topic", self.topic]
        chosen += (
            ["--partition", str(self.partition)] if self.key is None else ["--key", shown_key(self.key) or ""]
        )
        return f"stream parked {name} {shlex.join(chosen)}" + (" --reason '...'" if name == "discard" else "")


def keys(
    connection: Connection,
    *,
    group: str | None = None,
    topic: str | None = None,
    key: bytes | None = None,
    partition: int | None = None,
) -> list[ParkedKey]:
    """The parked keys that fit everything given, those that wait longest first.

    `partition` chooses the records without a key of that partition.
    """
    chosen = {"group": group, "topic": topic, "key": key, "partition": partition}
    with connection.cursor(row_factory=class_row(ParkedKey)) as cursor:
        return cursor.execute(query("parked_heads"), chosen).fetchall()


def retry(connection: Connection, key: ParkedKey) -> ParkedKey:
    """Have a waiting key tried now; returns the key as it was then.

    The call takes the way of every other: a relay publishes it, the group tries the head, and the try counts. Raises
    Refused where it is held or not parked any more, or somebody holds its lock for long.
    """
    return alone(connection, _lane(key), key.name, partial(_retry, connection, key), hint=key.list_command)


def release(connection: Connection, key: ParkedKey) -> ParkedKey:
    """Let a held key go on without its head, whose letter stays open; returns the key as it was then.

    Raises Refused where it is not held any more, or somebody holds its lock for long.
    """
    return alone(connection, _lane(key), key.name, partial(_release, connection, key), hint=key.list_command)


def discard(connection: Connection, key: ParkedKey, reason: str) -> ParkedKey:
    """Give up the key's head for good; returns the key as it was then.

    A held one's letter is closed. One that would be tried again counts as skipped, for this reason. Raises Refused
    where it is not parked any more, or another event is its head now, or somebody holds its lock for long.
    """
    act = partial(_discard, connection, key, reason)
    return alone(connection, _lane(key), key.name, act, hint=key.list_command)


def _retry(connection: Connection, key: ParkedKey) -> ParkedKey:
    found = _look(connection, key)
    if found.held:
        replay = key.list_command if found.letter is None else f"stream dlq replay {found.letter}"
        raise Refused(f"{key.name}: its first event is dead, and tried again by replaying it", hint=replay)
    connection.execute(query("due_now"), _place(found))
    leave_live_head(connection, found.group, _lane(found))
    _write(connection, found, "parked retry", "retried", None)
    return found


def _release(connection: Connection, key: ParkedKey) -> ParkedKey:
    found = _look(connection, key)
    if not found.held:
        when = "" if found.due_at is None else f"; its next try is at {rfc3339(found.due_at)}"
        raise Refused(f"{key.name}: nothing holds it{when}", hint=key.list_command)
    _remove(connection, found)
    _write(connection, found, "parked release", "released", None)
    return found


def _discard(connection: Connection, key: ParkedKey, reason: str) -> ParkedKey:
    found = _look(connection, key)
    _remove(connection, found)
    if found.letter is not None:
        closed = {"letter": found.letter, "status": "discarded", "who": who(), "reason": reason}
        connection.execute(query("resolve_letter"), closed)
    elif not found.held:
        connection.execute(
            query("skip_parked"),
            _place(found) | {"attempts": found.attempts, "who": who(), "reason": f"discarded: {reason}"},
        )
    _write(connection, found, "parked discard", "discarded", reason)
    return found


def _look(connection: Connection, key: ParkedKey) -> ParkedKey:
    """The key as it is under the lock."""
    partition = key.partition if key.key is None else None
    found = keys(connection, group=key.group, topic=key.topic, key=key.key, partition=partition)
    if not found:
        raise Refused(f"{key.name}: it is not parked any more", hint=key.list_command)
    if (found[0].partition, found[0].offset, found[0].event_id) != (key.partition, key.offset, key.event_id):
        raise Refused(
            f"{key.name}: its first event is now {found[0].position}, it was {key.position}",
            hint=key.list_command,
        )
    return found[0]


def _remove(connection: Connection, key: ParkedKey) -> None:
    connection.execute(query("remove_head"), _place(key))
    leave_live_head(connection, key.group, _lane(key))


def _place(key: ParkedKey) -> dict[str, Any]:
    names = ("group", "topic", "partition", "offset", "event_id", "epoch")
    return {name: getattr(key, name) for name in names}


def _write(connection: Connection, key: ParkedKey, action: str, result: str, reason: str | None) -> None:
    parameters = {
        "event_id": str(key.event_id),
        "type": key.type,
        "position": key.position,
        "followers": key.followers,
        "letter": key.letter,
    }
    write_action(connection, action, key.name, result, parameters=parameters, reason=reason)


def _lane(key: ParkedKey) -> int:
    return lane_number(key.group, key.topic, key.key, key.partition)
