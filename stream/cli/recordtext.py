"""Records on a terminal: all of it is what others wrote, and made harmless."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from stream.cli.text import plural, printable
from stream.events import event_time
from stream.inspection import Inspected
from stream.keys import shown_key
from stream.views import clock

MOST_HEX = 256  # bytes shown of a payload that is none


def page(one: Inspected, *, hexed: bool = False) -> Iterator[str]:
    """The lines of `topics inspect`: all that is known of a record. `hexed`: its key and value as bytes."""
    record = one.record
    stamp = "-" if one.timestamp is None else clock(one.timestamp)
    happened = event_time(record.headers, record.timestamp)
    schema = "-" if one.schema is None else f"{one.schema} ({one.schema_name or 'not of this project'})"
    yield record.position
    yield f"{'time':<9} {stamp}"
    yield f"{'key':<9} {_key(one)}"
    yield f"{'event':<9} {printable(one.type or '(no type)')}  {one.event_id}"
    yield f"{'happened':<9} {clock(happened)}"
    yield f"{'schema':<9} {schema}"
    yield from header_lines(record.headers)
    if hexed:
        for name, value in (("key", record.key), ("value", record.value)):
            yield f"{name}, {'none' if value is None else plural(len(value), 'byte')}"
            yield from (f"  {line}" for line in hex_lines(value or b""))
    else:
        yield from payload_lines(record.value, one.data, f"that cannot be decoded: {one.problem}")


def line(one: Inspected, *, hexed: bool = False) -> str:
    """A record in one line, as `topics tail` has it."""
    stamp = "-" if one.timestamp is None else clock(one.timestamp)
    schema = "-" if one.schema is None else str(one.schema)
    value = one.record.value
    if value is None:
        what = "(no value)"
    elif hexed:
        what = value[:MOST_HEX].hex() + "..." * (len(value) > MOST_HEX)
    elif one.data is None:
        what = printable(
            f"cannot be decoded: {one.problem}: {value[:32].hex()}{'...' * (len(value) > 32)}", 400
        )
    else:
        what = printable(json.dumps(one.data, ensure_ascii=False, default=str), 400)
    event = f"{printable(one.type or '(no type)', 80)} {schema}"
    return f"{stamp}  {one.record.position}  {_key(one)}  {event}  {what}"


def header_lines(headers: Iterable[tuple[str, bytes | None]]) -> Iterator[str]:
    """Each header in a line, text as it is, bytes that are none as hex."""
    yield "headers"
    for name, value in headers:
        yield f"  {printable(name)}: {'(null)' if value is None else printable(shown_key(value) or '')}"


def payload_lines(value: bytes | None, data: Any, why_not: str) -> Iterator[str]:
    """The decoded data; where there are none, why not, and the bytes."""
    if value is None:
        yield "payload: none"
    elif data is not None:
        yield "payload"
        text = json.dumps(data, ensure_ascii=False, indent=2, default=str)
        yield from (f"  {printable(line, 1000)}" for line in text.splitlines())
    else:
        more = len(value) - MOST_HEX
        yield f"payload, {plural(len(value), 'byte')} {printable(why_not, 400)}"
        yield f"  {value[:MOST_HEX].hex(' ', -4)}{f' ... {more} more' if more > 0 else ''}"


def hex_lines(value: bytes) -> Iterator[str]:
    """Sixteen bytes a line: their offset, hex, and what of them is ASCII."""
    for start in range(0, len(value), 16):
        part = value[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{start:08x}  {part.hex(' '):<47}  {text}"


def _key(one: Inspected) -> str:
    return printable(shown_key(one.record.key) or "(none)", 80)
