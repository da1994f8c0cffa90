"""Records and events: ids, times and headers from bytes nobody vouches for."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from stream.events import Record, cloud_headers, event_id_of, event_time, header, named_event_id


def record(headers: list[tuple[str, bytes | None]], offset: int = 7) -> Record:
    return Record("orders", 3, offset, b"1", b"x", headers, 0)


def test_the_event_id_is_ce_id() -> None:
    id = uuid.uuid4()
    assert event_id_of(record([("other", b"x"), ("ce_id", str(id).encode())])) == id


def test_without_a_usable_ce_id_the_position_makes_a_stable_id() -> None:
    without = event_id_of(record([]))
    assert (
        without
        == event_id_of(record([("ce_id", b"no uuid")]))
        == event_id_of(record([("ce_id", b"\xff\xfe")]))
    )
    assert without != event_id_of(record([], offset=8))
    assert without.version == 8


def test_a_callers_own_id_is_one_event_per_type() -> None:
    assert named_event_id("OrderPlaced", "7") == named_event_id("OrderPlaced", "7")
    assert named_event_id("OrderPlaced", "7") != named_event_id("OrderPaid", "7")
    assert named_event_id("A", "7").variant == uuid.RFC_4122


def test_the_time_is_ce_time_in_utc() -> None:
    there = datetime(2010, 12, 1, 9, 26, tzinfo=timezone(timedelta(hours=1)))
    headers = cloud_headers("id", "OrderPlaced", there)
    wire = [(name, value.encode() if isinstance(value, str) else value) for name, value in headers]
    assert event_time(wire, 0) == there
    assert event_time(wire, 0).tzinfo is UTC
    assert header(wire, "ce_type") == "OrderPlaced"


@given(st.binary(max_size=40), st.integers(-(2**63), 2**63 - 1))
def test_no_header_and_no_timestamp_of_a_record_can_raise(value: bytes, timestamp: int) -> None:
    headers = [("ce_id", value), ("ce_time", value), ("ce_type", value)]
    event_id_of(record(headers))
    assert event_time(headers, timestamp).tzinfo is UTC
    header(headers, "ce_type")
