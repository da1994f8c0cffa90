"""Older records are read as the latest version of their event has them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from stream.errors import SchemaError
from stream.schemas import Schema
from stream.schemas.codec import Writer
from tests.support.avro import DECIMAL, INSTANT, codec, field, version


def read(written: Schema, data: dict[str, Any], wanted: Schema) -> dict[str, Any]:
    own = codec(written, wanted)
    return own.decode(Writer(written).write(data))[1]


def test_the_highest_number_of_a_name_is_written_and_seen() -> None:
    own = codec(version(3, "A", field("y", "int")), version(1, "A", field("x", "int")), version(2, "B"))
    assert own.encode("A", {"y": 1})[:5] == b"\x00\x00\x00\x00\x03"
    assert own.encode("B", {}) == b"\x00\x00\x00\x00\x02"
    assert own.fields("A") == ["y"]


def test_a_number_above_four_digits_keeps_its_id() -> None:
    own = codec(version(1_234_567, "A"))
    assert own.encode("A", {}) == b"\x00\x00\x12\xd6\x87"
    assert own.decode(b"\x00\x00\x12\xd6\x87") == ("A", {})


def test_added_fields_get_their_defaults_and_removed_ones_are_gone() -> None:
    old = version(1, "A", field("x", "int"), field("gone", {"type": "array", "items": "string"}))
    new = version(2, "A", field("country", ["null", "string"], default=None), field("x", "long"))
    assert read(old, {"x": 1, "gone": ["a", "b"]}, new) == {"x": 1, "country": None}


def test_a_renamed_field_is_found_by_its_alias() -> None:
    old, new = version(1, "A", field("sum", "int")), version(2, "A", field("total", "int", aliases=["sum"]))
    assert read(old, {"sum": 7}, new) == {"total": 7}


def test_whole_numbers_become_floating_ones() -> None:
    found = read(version(1, "A", field("x", "int")), {"x": 3}, version(2, "A", field("x", "double")))
    assert found == {"x": 3.0}
    assert isinstance(found["x"], float)


PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [field("x", "int", default=7), field("at", INSTANT, default=0)],
}


@pytest.mark.parametrize(
    ("type", "default", "seen"),
    [
        (DECIMAL, "\u0000", Decimal("0.0000")),
        (DECIMAL, "\u00ff\u009c", Decimal("-0.0100")),
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "Two", "size": 2}, "\u0000\u00ff", b"\x00\xff"),
        (INSTANT, 1_000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("double", 1, 1.0),
        ({"type": "enum", "name": "Suit", "symbols": ["red", "black"]}, "black", "black"),
        ([DECIMAL, "null"], "\u0001", Decimal("0.0001")),
        (["null", DECIMAL], "\u0001", Decimal("0.0001")),
        ({"type": "array", "items": DECIMAL}, ["\u0001"], [Decimal("0.0001")]),
        ({"type": "map", "values": INSTANT}, {"a": 0}, {"a": datetime(1970, 1, 1, tzinfo=UTC)}),
        (PLACE, {"x": 1, "at": 0}, {"x": 1, "at": datetime(1970, 1, 1, tzinfo=UTC)}),
        (PLACE, {}, {"x": 7, "at": datetime(1970, 1, 1, tzinfo=UTC)}),
        (["null", PLACE], None, None),
    ],
)  # fmt: skip
def test_a_default_is_the_same_value_whether_written_or_filled_in(type: Any, default: Any, seen: Any) -> None:
    old, new = version(1, "A"), version(2, "A", field("x", type, default=default))
    own = codec(old, new)
    filled = own.decode(Writer(old).write({}))
    assert filled == own.decode(own.encode("A", {})) == ("A", {"x": seen})
    assert filled[1]["x"].__class__ is seen.__class__


@pytest.mark.parametrize(
    "type", [{"type": "array", "items": "int"}, [{"type": "array", "items": "int"}, "null"]]
)
def test_a_handler_that_changes_a_default_changes_its_own_event_only(type: Any) -> None:
    old, new = version(1, "A"), version(2, "A", field("x", type, default=[]))
    own = codec(old, new)
    own.decode(Writer(old).write({}))[1]["x"].append(1)
    assert own.decode(Writer(old).write({})) == ("A", {"x": []})


def test_defaults_inside_a_list_of_records_are_filled_in() -> None:
    def line(*more: Any) -> dict[str, Any]:
        return {"type": "record", "name": "Line", "fields": [field("sku", "string"), *more]}

    old = version(1, "A", field("lines", {"type": "array", "items": line()}))
    new = version(
        2, "A", field("lines", {"type": "array", "items": line(field("price", DECIMAL, default="\u0001"))})
    )
    assert read(old, {"lines": [{"sku": "a"}]}, new) == {"lines": [{"sku": "a", "price": Decimal("0.0001")}]}


@pytest.mark.parametrize(
    ("type", "default"),
    [(DECIMAL, "\u007f" * 20), (INSTANT, 2**62), ({"type": "string", "logicalType": "uuid"}, "nobody")],
)
def test_a_default_outside_its_logical_type_is_refused(type: Any, default: Any) -> None:
    with pytest.raises(
        SchemaError, match=r"schemas/0001-A.avsc: A.x: the default is outside its logical type"
    ):
        codec(version(1, "A", field("x", type, default=default)))
