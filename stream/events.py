"""Record: bytes at a position. Event: a decoded fact. And the CloudEvents headers between them. Pure."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Headers = list[tuple[str, str | bytes | None]]

SPEC_VERSION = b"1.0"
SOURCE = b"/stream/outbox"
CONTENT_TYPE = b"application/avro"
# https://www.w3.org/TR/trace-context/; version ff is forbidden, later ones may say more behind a hyphen.
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[ -~]{0,200})?"
)
TRACEPARENT, TRACESTATE = "traceparent", "tracestate"


@dataclass(slots=True)
class Record:
    """What the broker gave us at one position: bytes, not yet trusted.

    `timestamp` is the broker's, in milliseconds since 1970; `headers` keep order and duplicates.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int

    @property
    def position(self) -> str:
        """`orders[3]@1207`, as the logs name a record."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(slots=True)
class Event:
    """A decoded fact, as a handler gets it. `time` is when it happened, in UTC.

    `traceparent`: the W3C trace context that its transaction wrote into its headers, or None.
    """

    id: uuid.UUID
    type: str
    key: str | None
    time: datetime
    data: dict[str, Any]
    headers: Sequence[tuple[str, bytes | None]]
    topic: str
    partition: int
    offset: int

    @property
    def traceparent(self) -> str | None:
        text = header(self.headers, TRACEPARENT)
        return text if text is not None and _TRACEPARENT.fullmatch(text) else None


def trace_id(headers: Sequence[tuple[str, bytes | None]]) -> str | None:
    """The trace id of a `traceparent` header that is one."""
    found = _TRACEPARENT.fullmatch(header(headers, TRACEPARENT) or "")
    return found[1] if found else None


def cloud_headers(event_id: str, type: str, time: datetime) -> Headers:
    """The CloudEvents headers (binary mode of the Kafka protocol binding) of one published event."""
    return [
        ("ce_specversion", SPEC_VERSION),
        ("ce_id", event_id.encode()),
        ("ce_source", SOURCE),
        ("ce_type", type.encode()),
        ("ce_time", time.astimezone(UTC).isoformat().encode()),
        ("content-type", CONTENT_TYPE),
    ]


def header(headers: Sequence[tuple[str, bytes | None]], name: str) -> str | None:
    """The first header of that name as text, or None where there is none or it is no UTF-8 text."""
    for found, value in headers:
        if found == name:
            try:
                return value.decode() if value is not None else None
            except UnicodeDecodeError:
                return None
    return None


def cloud_attributes(
    headers: Sequence[tuple[str, bytes | None]],
) -> tuple[str | None, str | None, str | None]:
    """`ce_id`, `ce_type` and `ce_time` as text, the first of each; raises UnicodeDecodeError where one is none."""
    id = type = time = None
    for name, value in headers:
        if value is None or name[:3] != "ce_":
            continue
        if name == "ce_id" and id is None:
            id = value.decode()
        elif name == "ce_type" and type is None:
            type = value.decode()
        elif name == "ce_time" and time is None:
            time = value.decode()
    return id, type, time


def event_id_of(record: Record) -> uuid.UUID:
    """The record's event id; without a usable `ce_id`, an id made from its position."""
    return event_id(record, header(record.headers, "ce_id"))


def event_id(record: Record, text: str | None) -> uuid.UUID:
    """The event id that `ce_id` says; where it is missing or no UUID, an id made from the record's position."""
    if text is not None:
        try:
            return uuid.UUID(text)
        except ValueError:
            pass
    return uuid8(f"{record.topic}\x1f{record.partition}\x1f{record.offset}".encode())


def named_event_id(type: str, id: str) -> uuid.UUID:
    """The event id of a caller's own id: UUIDv8 of sha256(type, 0x1f, id).

    The same in SQL (`stream.event_id`), so that a caller's retry is one event from either side.
    """
    return uuid8(f"{type}\x1f{id}".encode())


def uuid8(content: bytes) -> uuid.UUID:
    """A UUIDv8 (RFC 9562) from the first 16 bytes of the content's SHA-256."""
    digest = bytearray(hashlib.sha256(content).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return uuid.UUID(bytes=bytes(digest))


def event_time(headers: Sequence[tuple[str, bytes | None]], timestamp_ms: int) -> datetime:
    """`ce_time` in UTC; where it is missing or no time, the broker's timestamp, clamped to what a date holds."""
    return parsed_time(header(headers, "ce_time"), timestamp_ms)


def parsed_time(text: str | None, timestamp_ms: int) -> datetime:
    """The time that `ce_time` says, as `event_time`."""
    if text is not None:
        try:
            time = datetime.fromisoformat(text)
            if time.tzinfo is UTC:  # as the relay writes it
                return time
            return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    return datetime.fromtimestamp(min(max(timestamp_ms, 0), 253402300799000) / 1000, UTC)
