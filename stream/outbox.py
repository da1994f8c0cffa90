"""Outbox: the one door in. An event becomes a row in the caller's own transaction, or an error before it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import uuid_utils

from stream import spans
from stream.database import bytea_array, query, text_array
from stream.errors import InvalidEvent
from stream.events import named_event_id
from stream.project import Project

MAX_KEY_BYTES = 1024
MAX_PAYLOAD_BYTES = 900_000
MAX_DEBOUNCE_BYTES = 256
LONGEST_DELAY = timedelta(days=36_500)
EARLIEST, LATEST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
RESERVED_HEADERS = ("ce_", "stream.")


@dataclass(frozen=True, slots=True)
class Prepared:
    """An event that is valid and encoded: what remains is to write its row."""

    topic: str
    key: bytes
    event_id: uuid.UUID
    type: str
    time: datetime
    payload: bytes
    header_names: str | None
    header_values: str | None
    delay: timedelta | None
    debounce: str | None
    max_wait: timedelta | None


class Outbox:
    """Appends events of one project. Safe to share between threads: it holds no connection.

    outbox = Outbox("path/to/project")
    with psycopg.connect(...) as conn:
        conn.execute("insert into orders ...")
        outbox.append(conn, "OrderPlaced", key="536365", data={...})
    """

    def __init__(self, project: Project | Path | str) -> None:
        self._project = project if isinstance(project, Project) else Project(project)
        self._codec = self._project.codec
        self._topics = self._project.topics

    def append(
        self,
        conn: psycopg.Connection[Any],
        type: str,
        *,
        key: str,
        data: Mapping[str, Any],
        id: str | uuid.UUID | None = None,
        time: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        delay: timedelta | float | None = None,
        debounce: str | None = None,
        max_wait: timedelta | float | None = None,
    ) -> uuid.UUID:
        """Write one event in the transaction of `conn`; returns its event id.

        `id`: your own, unique per type; the same id again is the same event. `delay` and `max_wait`: a timedelta,
        or seconds. `debounce`: of the events of this key with the same text only the last is published, once
        there was none for `delay`, or `max_wait` after the first. Raises InvalidEvent before anything is sent,
        so that a refused event leaves the transaction usable; waits while another transaction holds the key.
        """
        prepared = self.prepare(
            type,
            key=key,
            data=data,
            id=id,
            time=time,
            headers=headers,
            delay=delay,
            debounce=debounce,
            max_wait=max_wait,
        )
        self.write(conn, [prepared])
        return prepared.event_id

    def append_many(
        self, conn: psycopg.Connection[Any], events: Iterable[Mapping[str, Any]]
    ) -> list[uuid.UUID]:
        """Write several events in order, each a mapping with `append`'s argument names; one round trip.

        Locks each key once, in one order over all calls: two transactions that append to the same keys this way
        cannot end in a deadlock, as two series of single calls can.
        """
        prepared = [self.prepare(**event) for event in events]
        self.write(conn, prepared)
        return [event.event_id for event in prepared]

    def prepare(
        self,
        type: str,
        *,
        key: str,
        data: Mapping[str, Any],
        id: str | uuid.UUID | None = None,
        time: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        delay: timedelta | float | None = None,
        debounce: str | None = None,
        max_wait: timedelta | float | None = None,
    ) -> Prepared:
        """Validate and encode, without a database. Raises InvalidEvent naming field, expected and got."""
        payload = self._codec.encode(type, data)
        if spans.on():
            headers = spans.created(self._topics.topic_of(type), type, str(key), headers)
        names, values = _header_literals(type, headers)
        size = len(payload) + len(names or "") + len(values or "") // 2
        if size > MAX_PAYLOAD_BYTES:
            raise InvalidEvent(
                "data", f"at most {MAX_PAYLOAD_BYTES} bytes encoded, with its headers", f"{size}", type=type
            )
        wait, longest = _duration(type, "delay", delay), _duration(type, "max_wait", max_wait)
        if debounce is not None:
            _text_bytes(type, "debounce", debounce, MAX_DEBOUNCE_BYTES)
            if wait is None:
                raise InvalidEvent("debounce", "to stand beside a delay", "no delay", type=type)
        if longest is not None and debounce is None:
            raise InvalidEvent("max_wait", "to stand beside debounce", "no debounce", type=type)
        return Prepared(
            topic=self._topics.topic_of(type),
            key=_text_bytes(type, "key", key, MAX_KEY_BYTES),
            event_id=_event_id(type, id),
            type=type,
            time=_utc(type, time),
            payload=payload,
            header_names=names,
            header_values=values,
            delay=wait,
            debounce=debounce,
            max_wait=longest,
        )

    @staticmethod
    def write(conn: psycopg.Connection[Any], events: Sequence[Prepared]) -> None:
        """Write the rows with one statement, in order, each key locked once."""
        if not events:
            return
        scheduled = any(event.delay is not None for event in events)
        conn.execute(
            query("append_encoded"),
            {
                "topics": [event.topic for event in events],
                "keys": [event.key for event in events],
                "event_ids": [event.event_id for event in events],
                "types": [event.type for event in events],
                "times": [event.time for event in events],
                "payloads": [event.payload for event in events],
                "header_names": [event.header_names for event in events],
                "header_values": [event.header_values for event in events],
                "delays": [event.delay for event in events] if scheduled else None,
                "debounces": [event.debounce for event in events] if scheduled else None,
                "max_waits": [event.max_wait for event in events] if scheduled else None,
            },
        )


def _event_id(type: str, id: object) -> uuid.UUID:
    if id is None:
        return uuid.UUID(bytes=uuid_utils.uuid7().bytes)
    try:
        return named_event_id(type, str(id))
    except UnicodeEncodeError:
        raise InvalidEvent("id", "text that UTF-8 can hold", _clamped(id), type=type) from None


def _text_bytes(type: str, field: str, text: object, limit: int) -> bytes:
    if not isinstance(text, str):
        raise InvalidEvent(field, "text", text.__class__.__name__, type=type)
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(field, "text that UTF-8 can hold", _clamped(text), type=type) from None
    if not 1 <= len(encoded) <= limit:
        raise InvalidEvent(field, f"text of 1 to {limit} bytes", f"{len(encoded)} bytes", type=type)
    if "\0" in text:
        raise InvalidEvent(field, "text without a null character", _clamped(text), type=type)
    return encoded


def _utc(type: str, time: object) -> datetime:
    if time is None:
        return datetime.now(UTC)
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise InvalidEvent("time", "a datetime with a time zone", _clamped(time), type=type)
    if not EARLIEST <= time < LATEST:
        raise InvalidEvent("time", "a time in the years 1 to 9999, in UTC", _clamped(time), type=type)
    return time.astimezone(UTC)


def _duration(type: str, field: str, value: object) -> timedelta | None:
    if value is None:
        return None
    try:
        duration = value if isinstance(value, timedelta) else timedelta(seconds=value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InvalidEvent(field, "a timedelta or seconds", _clamped(value), type=type) from None
    if not timedelta(0) <= duration <= LONGEST_DELAY:
        raise InvalidEvent(field, "no time in the past, at most 100 years", _clamped(value), type=type)
    return duration


def _header_literals(type: str, headers: Mapping[str, str] | None) -> tuple[str | None, str | None]:
    """The headers as two PostgreSQL array literals: an array of arrays of different lengths is none."""
    if not headers:
        return None, None
    names, values = [], []
    for name, value in headers.items():
        field = f"headers.{_clamped(name)}"
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidEvent(field, "text", value.__class__.__name__, type=type)
        if not name or name.startswith(RESERVED_HEADERS) or name == "content-type" or "\0" in name + value:
            raise InvalidEvent(
                field, "a name that is not ce_*, stream.* or content-type", "a reserved name", type=type
            )
        try:
            values.append(value.encode())
            name.encode()
        except UnicodeEncodeError:
            raise InvalidEvent(field, "text that UTF-8 can hold", _clamped(value), type=type) from None
        names.append(name)
    return text_array(names), bytea_array(values)


def _clamped(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
