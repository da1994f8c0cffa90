"""Parking: the rows of stream.parked, as a group's workers read and write them.

The existence of a row is the lock of its lane: of its (topic, key), or of its partition where the record has no key.
Invariants, kept by the transaction that calls this:
  * rows of a lane are written and taken away under the lane's lock (`lock`);
  * a lane with rows has one live head (`leave_live_heads`, in SQL): its lowest row is held, or has a record on its way;
  * rows of a lane run in the order of (partition, offset), from the lowest, and nothing else of the lane runs while
    there are any.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from stream.connection import HandlerConnection
from stream.database import int_array, query
from stream.events import Record, cloud_attributes, header, trace_id
from stream.failures import Failure
from stream.lanes import LaneKey, lane_of
from stream.policy import Retry
from stream.work import ParkedRow, Work

ERROR = "stream.error."
FEW = 50  # lanes; so many steps along an index cost half of what looking up those of a run of 500 does


@dataclass(frozen=True, slots=True)
class Verdict:
    """A failed event and what becomes of it: another try, or (`retry` None) a dead letter."""

    work: Work
    failure: Failure
    retry: Retry | None


@dataclass(frozen=True, slots=True)
class ParkedLanes:
    """Which of the lanes are parked: an answer on its way; ask once its pipeline has ended."""

    lanes: set[int]
    cursor: Any

    def found(self) -> set[int]:
        """Those of the lanes that are parked."""
        return self.lanes.intersection([lane for (lane,) in self.cursor])


class Parking:
    """The parked rows of one group. Statements only: transactions are the caller's.

    A row has no epoch of its own (the column is 0): its position says it, whenever it runs.
    """

    def __init__(self, group: str, worker: str, *, on_dead: str) -> None:
        self._group = group
        self._on_dead = on_dead
        self._base: dict[str, Any] = {"group": group, "epoch": 0, "worker": worker}

    def lane_of(self, work: Work) -> int:
        """The number of a work's lane: what is locked and looked for."""
        record = work.record
        return lane_number(self._group, record.topic, record.key, record.partition)

    # -- looking --------------------------------------------------------------------------------------------------

    def look(self, conn: HandlerConnection, lanes: set[int]) -> ParkedLanes:
        """Which of the lanes are parked? Statement only; for a pipeline."""
        arguments = self._base | {"lanes": int_array(lanes), "few": FEW}
        name = "parked_lanes" if len(lanes) <= FEW else "some_parked_lanes"
        return ParkedLanes(lanes, conn.execute(query(name), arguments, prepare=False))

    def look_for_any(self, conn: HandlerConnection) -> Any:
        """A cursor over one row: whether any lane is parked.

        Planned anew each time, as `look` is: a plan that was kept from when the table was empty reads all of it.
        """
        return conn.execute(query("any_parked"), self._base, prepare=False)

    def lock(self, conn: HandlerConnection, lanes: Iterable[int]) -> None:
        """Until the end of the transaction nobody else changes these lanes. One call for all: it sorts them."""
        conn.execute(query("lock_lanes"), {"lanes": list(lanes)})

    def try_lock(self, conn: HandlerConnection, lanes: Iterable[int]) -> Any:
        """The same of those that nobody else holds; a cursor over them."""
        return conn.execute(query("try_lock_lanes"), {"lanes": list(lanes)})

    def load(self, conn: HandlerConnection, lanes: Sequence[int], limit: int) -> Any:
        """A cursor for `works`: up to `limit` rows of each lane that are due, from the lowest."""
        return conn.execute(
            query("load_parked"), self._base | {"lanes": list(lanes), "limit": limit}, binary=True
        )

    @staticmethod
    def works(rows: Iterable[Sequence[Any]]) -> list[Work]:
        """The loaded rows as works."""
        return [_work(*row) for row in rows]

    # -- writing --------------------------------------------------------------------------------------------------

    def follow(self, conn: HandlerConnection, works: Sequence[Work]) -> None:
        """Park events behind those of their key."""
        if works:
            conn.execute(query("follow"), self._base | self._records(works))

    def park(self, conn: HandlerConnection, verdicts: Sequence[Verdict]) -> None:
        """Park failed events: to be tried again, or, given up, held."""
        if not verdicts:
            return
        failures = [verdict.failure for verdict in verdicts]
        conn.execute(
            query("park"),
            self._base
            | self._records([verdict.work for verdict in verdicts])
            | {
                "attempts": [verdict.work.attempt for verdict in verdicts],
                "firsts": [_first(verdict.work) for verdict in verdicts],
                "delays": [None if v.retry is None else v.retry.delay_s for v in verdicts],
                "kinds": [
                    f.kind if v.retry else dead_kind(f) for v, f in zip(verdicts, failures, strict=True)
                ],
                "stages": [failure.stage for failure in failures],
                "classes": [failure.error_class for failure in failures],
                "messages": [failure.message for failure in failures],
                "fingerprints": [failure.fingerprint for failure in failures],
            },
        )

    def bury(self, conn: HandlerConnection, verdicts: Sequence[Verdict]) -> Any:
        """Dead letters of events parked as given up; their rows stay where the group holds its dead. Returns a cursor
        with one row: event ids, and the numbers of their letters."""
        works = [verdict.work for verdict in verdicts]
        letters = conn.execute(
            query("bury"),
            self._base
            | _places(works)
            | {
                "stacks": [verdict.failure.stack for verdict in verdicts],
                "trace_ids": [trace_id(work.record.headers) for work in works],
                "deploy_faults": [verdict.failure.deploy_fault for verdict in verdicts],
                "epochs": [work.epoch for work in works],
                "on_dead": self._on_dead,
            },
        )
        conn.execute(
            query("ledger_dead"),
            self._base
            | {
                "ids": [v.work.id for v in verdicts for _ in v.work.entries],
                "epochs": [epoch for v in verdicts for epoch in v.work.entries],
                "attempts": [v.work.attempt for v in verdicts for _ in v.work.entries],
                "reasons": [
                    f"{v.failure.error_class}: {v.failure.message}" for v in verdicts for _ in v.work.entries
                ],
            },
        )
        if self._on_dead == "release":
            self.unpark(conn, works)
        return letters

    def supersede(self, conn: HandlerConnection, works: Sequence[Work]) -> None:
        """Close the letters of events that were given up in an earlier epoch, and are settled in their own now."""
        if works:
            asked = {"ids": [work.id for work in works], "epochs": [work.epoch for work in works]}
            conn.execute(query("supersede_letters"), self._base | asked)

    def unpark(self, conn: HandlerConnection, works: Sequence[Work]) -> None:
        """Take away the rows of these works."""
        if works:
            places = self._base | _places(works)
            conn.execute(query("lock_parked"), places)
            conn.execute(query("unpark"), places)

    def leave_live_heads(self, conn: HandlerConnection, lanes: Collection[int]) -> None:
        """To be called once the lowest row of any of these lanes has changed, in the same transaction."""
        if lanes:
            conn.execute(query("leave_live_heads"), self._base | {"lanes": int_array(lanes)})

    def streak(self, conn: HandlerConnection, *, broken: bool) -> int:
        """How many keys died in a row of what a bad deploy does. Locks the count until the transaction's end."""
        with conn.pipeline():
            conn.execute(query("lock_streak"), self._base | {"broken": broken})
            found = conn.execute(query("streak"), self._base)
        row = found.fetchone()
        return 0 if row is None else int(row[0])

    def _records(self, works: Sequence[Work]) -> dict[str, Any]:
        records = [work.record for work in works]
        literals = [header_literals(record.headers) for record in records]
        return _places(works) | {
            "types": [_storable(work.type) for work in works],
            "keys": [record.key for record in records],
            "values": [record.value for record in records],
            "names": [names for names, _ in literals],
            "vals": [values for _, values in literals],
            "stamps": [min(max(record.timestamp, 0), 253402300799000) for record in records],
            "lanes": [self.lane_of(work) for work in works],
        }


def lane_number(group: str, topic: str, key: bytes | None, partition: int) -> int:
    """As stream.parked_lane in SQL."""
    if key is not None and len(key) > 100:
        return _lane_number(group, topic, key, partition)
    return _lane_number_cached(group, topic, key, partition)


def _lane_number(group: str, topic: str, key: bytes | None, partition: int) -> int:
    name = f"{group}\x1f{topic}\x1f".encode()
    digest = hashlib.sha256(name + (f"\x1f{partition}".encode() if key is None else key)).digest()
    return int.from_bytes(digest[:4], "big", signed=True)


_lane_number_cached = lru_cache(maxsize=16384)(_lane_number)


def woken_lane(group: str, record: Record) -> int | None:
    """The lane that a record of the retry topic wakes; None where its headers do not say it."""
    topic = header(record.headers, ERROR + "topic")
    partition = header(record.headers, ERROR + "partition")
    if topic is None or (record.key is None and not (partition or "").isdecimal()):
        return None
    return lane_number(group, topic, record.key, int(partition or 0) if record.key is None else 0)


def header_literals(headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, str]:
    """Names and values as PostgreSQL array literals: an array of arrays of different lengths is none."""
    names = [
        '"' + (_storable(name) or "").replace("\\", "\\\\").replace('"', '\\"') + '"' for name, _ in headers
    ]
    values = ["null" if value is None else '"\\\\x' + value.hex() + '"' for _, value in headers]
    return "{" + ",".join(names) + "}", "{" + ",".join(values) + "}"


def _storable(text: str | None) -> str | None:
    """Kafka's text may hold what PostgreSQL's cannot."""
    return None if text is None else text.replace("\0", "\ufffd")


def _first(work: Work) -> str | None:
    """What is known of a first try that was not written down, as JSON; `ago` in seconds."""
    first = work.first
    if first is None:
        return None
    ago = time.monotonic() - first.at
    return json.dumps({"ago": ago, "class": first.error_class, "message": first.message})


def dead_kind(failure: Failure) -> str:
    """The kind of a letter of this failure."""
    return "exhausted" if failure.kind == "failure" else failure.kind


def _places(works: Sequence[Work]) -> dict[str, Any]:
    records = [work.record for work in works]
    return {
        "topics": [record.topic for record in records],
        "partitions": [record.partition for record in records],
        "offsets": [record.offset for record in records],
        "ids": [work.id for work in works],
    }


def _work(
    topic: str,
    partition: int,
    offset: int,
    event_id: UUID,
    epoch: int,
    key: bytes | None,
    value: bytes | None,
    names: Sequence[str],
    values: Sequence[bytes | None],
    timestamp: int,
    lane: int,
    attempts: int,
    age_s: float,
    follower: bool,
) -> Work:
    record = Record(topic, partition, offset, key, value, list(zip(names, values, strict=True)), timestamp)
    type = time = None
    failed: BaseException | None = None
    try:
        _, type, time = cloud_attributes(record.headers)
    except UnicodeDecodeError as error:
        failed = error
    work = Work(record, lane_of(record), event_id, type, time, ParkedRow(lane, attempts, age_s))
    if failed is not None:
        work.fail(failed, "decode")
    return work


__all__ = [
    "LaneKey",
    "ParkedLanes",
    "Parking",
    "Verdict",
    "dead_kind",
    "header_literals",
    "lane_number",
    "woken_lane",
]
