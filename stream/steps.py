"""Steps: what happened to an event in a group, from all that wrote it down. Reading changes nothing.

The ledger has the end; dead letters and parked rows, those that are gone too, have the tries that failed; the group's
topics of retries and dead letters have when it was called and copied; operators have what they did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg.rows import dict_row

from stream.database import Connection, query
from stream.events import Record, event_id_of, event_time, header
from stream.topics import retry_topic

ERROR = "stream.error."

What = Literal[
    "parked",
    "failed",
    "called",
    "dead",
    "copied",
    "replayed",
    "discarded",
    "superseded",
    "released",
    "retried",
    "done",
    "skipped",
]
Of = tuple[UUID, str, int]  # event, group, epoch


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened. `position`: of the record that called it, or of the copy of a dead letter. `by`: the
    person who did it. `error`: its class and message."""

    at: datetime
    what: What
    attempt: int | None = None
    worker: str | None = None
    error: str | None = None
    letter: int | None = None
    kind: str | None = None
    by: str | None = None
    reason: str | None = None
    position: str | None = None


def written_down(
    connection: Connection, groups: Sequence[str], ids: Sequence[UUID], key: bytes, topics: Sequence[str]
) -> dict[Of, list[Step]]:
    """The steps that the database knows of these events of a key, but for the ledger's."""
    asked = {"groups": list(groups), "ids": list(ids), "key": key, "topics": list(topics)}
    found: dict[Of, list[Step]] = {}

    def rows(name: str) -> Iterator[tuple[list[Step], dict[str, Any]]]:
        with connection.cursor(row_factory=dict_row) as cursor:
            for row in cursor.execute(query(name), asked):
                of = (row["event_id"], row["consumer_group"], row["epoch"])
                yield found.setdefault(of, []), row

    for steps, row in rows("waits_of_events"):
        steps += of_wait(row["parked_at"], row["errors"])
    for steps, row in rows("letters_of_events"):
        steps += of_letter(row)
    asked["ids"] = [str(id) for id in ids]
    for id, group, epoch, at, who, result, reason in connection.execute(query("actions_on_events"), asked):
        found.setdefault((UUID(id), group, epoch), []).append(Step(at, result, by=who, reason=reason))
    return found


def kept_records(
    connection: Connection, groups: Sequence[str], ids: Sequence[UUID], key: bytes, topics: Sequence[str]
) -> list[Record]:
    """Records of the key that letters and parked rows hold, but for those of these events: without their values, in
    order of their positions."""
    asked = {"groups": list(groups), "ids": list(ids), "key": key, "topics": list(topics)}
    found = [
        Record(topic, partition, offset, key, None, list(zip(names, values, strict=True)), _milliseconds(at))
        for topic, partition, offset, key, at, names, values in connection.execute(
            query("kept_of_key"), asked
        )
    ]
    return sorted(found, key=lambda record: (record.topic, record.partition, record.offset))


def of_records(records: Iterable[Record]) -> dict[Of, list[Step]]:
    """What records of the groups' own topics are: a call of `<group>.retry`, a copy in `<group>.dlq`. Pure."""
    found: dict[Of, list[Step]] = {}
    for record in records:
        group = record.topic.rpartition(".")[0]
        what: What = "called" if record.topic == retry_topic(group) else "copied"
        step = Step(event_time((), record.timestamp), what, position=record.position)
        found.setdefault((_origin_id(record), group, 0), []).append(step)
    return found


def of_wait(parked_at: datetime, errors: Sequence[Mapping[str, Any]]) -> list[Step]:
    """The steps of a parked row: its tries that failed; and that it was parked, where that was behind another event:
    nothing of its own had failed then. Pure."""
    tries = _tries(errors)
    behind = [] if any(step.at <= parked_at for step in tries) else [Step(parked_at, "parked")]
    return [*behind, *tries]


def of_letter(row: Mapping[str, Any]) -> list[Step]:
    """The steps of a dead letter: its tries, the last of which it died of, and how it was closed. Pure."""
    error = f"{row['error_class']}: {row['error_message']}"
    death = Step(row["last_failed_at"], "dead", row["attempts"], row["worker"], error, row["id"], row["kind"])
    closed = []
    if row["resolved_at"] is not None:
        by, reason = row["resolved_by"], row["resolved_reason"]
        closed = [Step(row["resolved_at"], row["status"], letter=row["id"], by=by, reason=reason)]
    return [*_tries(row["errors"]), death, *closed]


def in_order(steps: Iterable[Step]) -> list[Step]:
    """The steps by time, each once: a try is told by its parked row, and by the letter that it became. Pure."""
    once = list(dict.fromkeys(steps))
    fatal = {(step.at, step.attempt) for step in once if step.what == "dead"}
    tries = [step for step in once if step.what != "failed" or (step.at, step.attempt) not in fatal]
    return sorted(tries, key=lambda step: step.at)


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _tries(errors: Sequence[Mapping[str, Any]]) -> list[Step]:
    """The tries that failed, as `errors` of a parked row or a letter has them."""
    return [
        Step(
            datetime.fromisoformat(error["at"]),
            "failed",
            error["attempt"],
            error["worker"],
            f"{error['class']}: {error['message']}",
        )
        for error in errors
    ]


def _origin_id(record: Record) -> UUID:
    """The id of the event that a record of a group's own topic is about."""
    topic, partition, offset = (
        header(record.headers, ERROR + name) for name in ("topic", "partition", "offset")
    )
    if topic is None or not (partition or "").isdecimal() or not (offset or "").isdecimal():
        return event_id_of(record)
    return event_id_of(replace(record, topic=topic, partition=int(partition or 0), offset=int(offset or 0)))
