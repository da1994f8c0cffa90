"""Checkup: what the doctor asks of the database. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row

from stream import overview, views
from stream.database import Connection, query
from stream.groups import ConsumerGroup
from stream.holds import Held, holds_of
from stream.views import OutboxStatus


@dataclass(frozen=True, slots=True)
class Server:
    """A database server, and what `role` finds there. `lacking`: rights that it has to have. `ahead_s`: its clock
    before this machine's, known to `exact_s`. `locks`: what its lock table holds for all transactions together."""

    version: str
    database: str
    role: str
    lacking: Sequence[str]
    ahead_s: float
    exact_s: float
    locks_per_transaction: int
    locks: int
    locks_held: int


@dataclass(frozen=True, slots=True)
class CheckedGroup:
    """A group without what only the broker knows: processes that are there, keys that wait for their next try or for a
    person, open letters, and what holds it."""

    group: str
    members: int = 0
    parked: int = 0
    held: int = 0
    dead: int = 0
    holds: Sequence[Held] = ()


@dataclass(frozen=True, slots=True)
class Tables:
    """What the tables say. `horizons`: how far back a group's ledger remembers, where it was pruned. `met`: the topics
    that groups have read, with their ids."""

    groups: Sequence[CheckedGroup]
    outbox: OutboxStatus
    horizons: Mapping[str, datetime]
    met: Mapping[str, Mapping[str, str]]


def server(connection: Connection) -> Server:
    connection.execute("select 1")  # the first answer also pays for the connection
    with connection.cursor(row_factory=dict_row) as cursor:
        asked = time.time()
        row = cursor.execute(query("server")).fetchone() or {}
        answered = time.time()
    lacking = [missing for (missing,) in connection.execute(query("rights_missing"))]
    middle = (asked + answered) / 2
    ahead_s = row.pop("clock").timestamp() - middle
    return Server(**row, lacking=lacking, ahead_s=ahead_s, exact_s=(answered - asked) / 2)


def tables(connection: Connection, declared: Mapping[str, ConsumerGroup]) -> Tables:
    """The tables must be there, and be readable."""
    horizons, met = {}, {}
    for group, pruned_before, topic_ids in connection.execute(query("horizons")):
        met[group] = topic_ids
        if pruned_before is not None:
            horizons[group] = pruned_before
    known = overview.known_of(connection, declared)
    groups = [_state(name, known.rows.get(name)) for name in known.names]
    return Tables(groups, views.outbox_status(connection), horizons, met)


def _state(group: str, row: dict[str, Any] | None) -> CheckedGroup:
    if row is None:
        return CheckedGroup(group)
    return CheckedGroup(group, row["members"], row["parked"], row["held"], row["dead"], holds_of(row))
