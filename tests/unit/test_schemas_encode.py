"""What an append accepts and refuses: one conform-and-encode step for Python values and their JSON forms."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from time import monotonic
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.errors import InvalidEvent, UnknownEventType
from stream.schemas import from_json, to_json
from stream.schemas.misfit import show
from tests.support.avro import DECIMAL, INSTANT, codec, codec_of, field, version

LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        field("sku", "string"),
        field("quantity", "int"),
        field("price", ["null", DECIMAL], default=None),
    ],
}
ORDER = codec(
    version(
        1,
        "OrderPlaced",
        field("customer_id", ["null", "string"]),
        field("placed_at", INSTANT),
        field("lines", {"type": "array", "items": LINE}),
        field("labels", {"type": "map", "values": "string"}, default={}),
    )
)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
EVE = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)


def order(**changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"customer_id": None, "placed_at": NOON, "lines": [{"sku": "A", "quantity": 1}]}
    return {**data, **changes}


def refused(type: Any, value: Any) -> InvalidEvent:
    with pytest.raises(InvalidEvent) as caught:
        codec_of(type).encode("Thing", {"value": value})
    assert caught.value.field == "value"
    assert caught.value.type == "Thing"
    return caught.value


def accepted(type: Any, value: Any) -> Any:
    own = codec_of(type)
    return own.decode(own.encode("Thing", {"value": value}))[1]["value"]


def test_an_order_comes_back_as_it_was_written() -> None:
    written = order(
        customer_id="17850",
        lines=[{"sku": "85123A", "quantity": 6, "price": Decimal("2.5500")}],
        labels={"gift": "yes"},
    )
    assert ORDER.decode(ORDER.encode("OrderPlaced", written)) == ("OrderPlaced", written)


def test_what_has_a_default_may_be_left_out() -> None:
    data = ORDER.decode(ORDER.encode("OrderPlaced", order()))[1]
    assert data["labels"] == {}
    assert data["lines"][0]["price"] is None


def test_json_forms_give_the_same_bytes_as_python_values() -> None:
    written = order(lines=[{"sku": "A", "quantity": 1, "price": Decimal("0.335")}])
    text = json.dumps(to_json(written))
    assert ORDER.encode("OrderPlaced", json.loads(text)) == ORDER.encode("OrderPlaced", written)


def test_an_unknown_event_type_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(
        UnknownEventType, match=r"expected one of OrderPlaced, got 'OrderPlacd' \(str\) \(did you mean"
    ):
        ORDER.encode("OrderPlacd", order())


@pytest.mark.parametrize(
    ("data", "path", "expected", "got"),
    [
        (order(lines=[{"sku": "A"}]), "lines[0].quantity", "a value", "nothing: the field is missing"),
        (order(lines=[{"sku": "A", "quantity": 1}] * 2 + [{"sku": "A", "quantity": "three"}]),
         "lines[2].quantity", "int", "'three' (str)"),
        (order(lines=[{"sku": "A", "quantity": 1, "price": "1.00001"}]), "lines[0].price",
         "null or a number of at most 14 digits and 4 decimals", "'1.00001' (str)"),
        (order(lines={"sku": "A"}), "lines", "a list", "a dict of 1"),
        (order(lines=["A"]), "lines[0]", "an object", "'A' (str)"),
        (order(labels={"gift": 1}), "labels.gift", "text", "1 (int)"),
        (order(labels={"a b": 1}), "labels['a b']", "text", "1 (int)"),
        (order(labels={1: "x"}), "labels", "text", "1 (int)"),
        (order(customer_id=17850), "customer_id", "null or text", "17850 (int)"),
        (order(placed_at="yesterday"), "placed_at", "a time with a zone, such as 2026-01-31T12:00:00Z",
         "'yesterday' (str)"),
        ({}, "customer_id", "a value", "nothing: the field is missing"),
        ([], "data", "an object", "a list of 0"),
        (None, "data", "an object", "null"),
    ],
)  # fmt: skip
def test_a_misfit_names_its_path_what_was_expected_and_what_was_there(
    data: Any, path: str, expected: str, got: str
) -> None:
    with pytest.raises(InvalidEvent) as caught:
        ORDER.encode("OrderPlaced", data)
    error = caught.value
    assert (error.field, error.expected, error.got, error.type) == (path, expected, got, "OrderPlaced")
    assert str(error) == f"OrderPlaced.{path}: expected {expected}, got {got}"


def test_an_unknown_field_is_refused_with_the_near_name() -> None:
    with pytest.raises(InvalidEvent) as caught:
        ORDER.encode("OrderPlaced", order(costumer_id="17850"))
    assert caught.value.field == "costumer_id"
    assert caught.value.expected == "no field of that name (did you mean customer_id?)"

    with pytest.raises(InvalidEvent) as caught:
        ORDER.encode("OrderPlaced", order(lines=[{"sku": "A", "quantity": 1, "zzz": 1}]))
    assert caught.value.field == "lines[0].zzz"
    assert caught.value.expected == "no field of that name (known: sku, quantity, price)"


def test_a_field_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="text as the name of a field"):
        ORDER.encode("OrderPlaced", {**order(), 7: 1})


class Colour(StrEnum):
    RED = "red"


class Count(IntEnum):
    TWO = 2


SUIT = {"type": "enum", "name": "Suit", "symbols": ["red", "black"]}
DAY = {"type": "int", "logicalType": "date"}
CLOCK = {"type": "long", "logicalType": "time-micros"}
WALL = {"type": "long", "logicalType": "local-timestamp-micros"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
ID = {"type": "string", "logicalType": "uuid"}
HASH = {"type": "fixed", "name": "Hash", "size": 4}
SMALL = {"type": "fixed", "name": "Small", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}
SOME_ID = UUID("0197e3f2-6a00-7000-8000-00000000002a")


@pytest.mark.parametrize(
    ("type", "value", "decoded"),
    [
        ("int", Count.TWO, 2),
        ("long", 2**63 - 1, 2**63 - 1),
        ("double", 3, 3.0),
        ("double", Decimal("0.5"), 0.5),
        ("float", 0.5, 0.5),
        ("string", Colour.RED, "red"),
        ("string", "päckchen 📦", "päckchen 📦"),
        (SUIT, Colour.RED, "red"),
        (["null", SUIT], "black", "black"),
        ("bytes", b"\x00\xff", b"\x00\xff"),
        ("bytes", bytearray(b"ab"), b"ab"),
        ("bytes", memoryview(b"ab"), b"ab"),
        ("bytes", "AP8=", b"\x00\xff"),
        (HASH, "AAECAw==", b"\x00\x01\x02\x03"),
        (DECIMAL, Decimal("2.55"), Decimal("2.5500")),
        (DECIMAL, "-2.55", Decimal("-2.5500")),
        (DECIMAL, 2.55, Decimal("2.5500")),
        (DECIMAL, 3, Decimal("3.0000")),
        (DECIMAL, "1e2", Decimal("100.0000")),
        (DECIMAL, "2.550000", Decimal("2.5500")),
        (DECIMAL, Decimal("0E+999999"), Decimal("0.0000")),
        (DECIMAL, "-99999999999999.9999", Decimal("-99999999999999.9999")),
        (SMALL, "-9999999.99", Decimal("-9999999.99")),
        (INSTANT, "2026-01-31T12:00:00Z", NOON),
        (INSTANT, "2026-01-31t13:00:00.000+01:00", NOON),
        (INSTANT, "2026-01-31 12:00:00.123456789Z", NOON + timedelta(milliseconds=123)),
        (INSTANT, datetime(2026, 1, 31, 14, tzinfo=timezone(timedelta(hours=2))), NOON),
        (INSTANT, EVE, EVE.replace(microsecond=999_000)),
        (MICROS, "2026-01-31T12:00:00.000001Z", NOON + timedelta(microseconds=1)),
        (WALL, "2026-01-31T12:00:00.5", datetime(2026, 1, 31, 12, 0, 0, 500_000)),
        (DAY, "2026-01-31", date(2026, 1, 31)),
        (DAY, date(1, 1, 1), date(1, 1, 1)),
        (CLOCK, "12:30:00.5", time(12, 30, 0, 500_000)),
        (ID, SOME_ID, SOME_ID),
        (ID, str(SOME_ID).upper(), SOME_ID),
        ({"type": "array", "items": "int"}, (1, 2), [1, 2]),
        ({"type": "map", "values": "int"}, MappingProxyType({"a": 1}), {"a": 1}),
        (["null", "int", "string"], "7", "7"),
        (["string", "int"], 7, 7),
        (["double", "long"], 7, 7),
        (["long", "double"], 7.5, 7.5),
        (["string", INSTANT], NOON, NOON),
        (["null", DECIMAL], "1.5", Decimal("1.5000")),
    ],
)  # fmt: skip
def test_python_values_and_json_forms_are_accepted(type: Any, value: Any, decoded: Any) -> None:
    found = accepted(type, value)
    assert found == decoded
    assert found.__class__ is decoded.__class__


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("int", True),
        ("int", 2**31),
        ("int", -(2**31) - 1),
        ("int", 10**5000),
        ("int", 3.0),
        ("int", "3"),
        ("int", None),
        ("long", 2**63),
        ("long", False),
        ("double", True),
        ("double", float("nan")),
        ("double", float("inf")),
        ("double", Decimal("NaN")),
        ("double", Decimal("sNaN")),
        ("double", Decimal("1e400")),
        ("double", 10**400),
        ("float", 3.5e38),
        ("float", "1.0"),
        ("boolean", 1),
        ("boolean", "true"),
        ("string", 1),
        ("string", b"a"),
        ("string", "a\x00b"),
        ("string", "a\ud800"),
        ("string", "\udfff\ud800"),
        ("bytes", "not base64!"),
        ("bytes", "AP8"),
        ("bytes", 1),
        (HASH, b"abc"),
        (HASH, "AAECAwQ="),
        (SUIT, "green"),
        (SUIT, ["red"]),
        (DECIMAL, True),
        (DECIMAL, None),
        (DECIMAL, "1_000"),
        (DECIMAL, " 1"),
        (DECIMAL, "١"),
        (DECIMAL, "NaN"),
        (DECIMAL, float("nan")),
        (DECIMAL, float("-inf")),
        (DECIMAL, Decimal("NaN")),
        (DECIMAL, Decimal("sNaN")),
        (DECIMAL, Decimal("Infinity")),
        (DECIMAL, Decimal("1E+999999")),
        (DECIMAL, "1e999999"),
        (DECIMAL, "1e-999999"),
        (DECIMAL, "0.00001"),
        (DECIMAL, "100000000000000"),
        (DECIMAL, 10**14),
        (DECIMAL, 10**1_000_000),
        (DECIMAL, "9" * 1_000_000),
        (SMALL, "10000000"),
        (INSTANT, datetime(2026, 1, 31, 12)),
        (INSTANT, "2026-01-31T12:00:00"),
        (INSTANT, "2026-01-31"),
        (INSTANT, "2026-02-31T12:00:00Z"),
        (INSTANT, "2026-01-31T12:00:00+25:00"),
        (INSTANT, 1769860800000),
        (WALL, NOON),
        (WALL, "2026-01-31T12:00:00Z"),
        (DAY, NOON),
        (DAY, "2026-02-30"),
        (DAY, 20484),
        (CLOCK, "25:00:00"),
        (CLOCK, time(12, tzinfo=UTC)),
        (ID, "{0197e3f2-6a00-7000-8000-00000000002a}"),
        (ID, 42),
        ({"type": "array", "items": "int"}, "12"),
        ({"type": "array", "items": "int"}, {1, 2}),
        ({"type": "map", "values": "int"}, [("a", 1)]),
        (["null", "string"], 1),
        (["int", "string"], None),
        ("null", 0),
    ],
    ids=show,
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_never_shown_at_length(type: Any, value: Any) -> None:
    error = refused(type, value)
    assert len(error.got) < 90
    assert error.got.isprintable()


def test_a_huge_value_is_clamped_in_the_message() -> None:
    assert refused("int", "x" * 10_000_000).got == "'" + "x" * 56 + "... (str)"
    assert refused("int", 10**5000).got == "an integer of 16610 bits"
    assert refused("int", [[0] * 10] * 1_000).got == "a list of 1000"
    assert refused("int", object()).got == "a value of type object"
    assert len(str(refused("int", {"a" * 10_000: 1}))) < 200


def test_a_field_name_of_someone_else_is_clamped_and_escaped() -> None:
    with pytest.raises(InvalidEvent) as caught:
        ORDER.encode("OrderPlaced", {**order(), "\ud800\x00" + "x" * 10_000: 1})
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("type", ["int", "double", DECIMAL])
def test_a_huge_number_is_refused_at_once(type: Any) -> None:
    huge = 1 << 10_000_000
    started = monotonic()
    refused(type, huge)
    assert monotonic() - started < 1


def test_a_refused_union_tells_the_deepest_misfit() -> None:
    pair = {"type": "record", "name": "Pair", "fields": [field("left", "int"), field("right", "int")]}
    own = codec_of(["null", "string", pair])
    with pytest.raises(InvalidEvent) as caught:
        own.encode("Thing", {"value": {"left": 1, "right": "x"}})
    assert caught.value.field == "value.right"
    with pytest.raises(InvalidEvent) as caught:
        own.encode("Thing", {"value": 1.5})
    assert (caught.value.field, caught.value.expected) == ("value", "null or text or an object")


def test_of_two_records_that_do_not_fit_the_nearer_one_tells() -> None:
    card = {"type": "record", "name": "Card", "fields": [field("digits", "string")]}
    cash = {"type": "record", "name": "Cash", "fields": [field("coins", {"type": "array", "items": "int"})]}
    with pytest.raises(InvalidEvent) as caught:
        codec_of([card, cash]).encode("Thing", {"value": {"coins": [1, "x"]}})
    assert caught.value.field == "value.coins[1]"


def test_of_two_records_in_a_union_the_one_that_fits_is_written() -> None:
    card = {"type": "record", "name": "Card", "fields": [field("digits", "string")]}
    cash = {"type": "record", "name": "Cash", "fields": [field("coins", "int")]}
    assert accepted([card, cash], {"coins": 3}) == {"coins": 3}
    assert accepted([card, cash], {"digits": "42"}) == {"digits": "42"}


def test_a_named_type_is_used_a_second_time_by_its_name() -> None:
    own = codec(
        version(1, "Move", field("from", {"type": "record", "name": "Place", "fields": [field("x", "int")]}),
                field("to", ["null", "Place"]), field("via", {"type": "array", "items": "Place"}))
    )  # fmt: skip
    data = {"from": {"x": 1}, "to": {"x": 2}, "via": [{"x": 3}]}
    assert own.decode(own.encode("Move", data)) == ("Move", data)


def test_required_fields_name_the_json_types_that_are_accepted() -> None:
    assert ORDER.required_fields("OrderPlaced") == {
        "customer_id": ["null", "string"],
        "placed_at": ["string"],
        "lines": ["array"],
    }
    own = codec(
        version(1, "Kinds", field("a", DECIMAL), field("b", "bytes"), field("c", "boolean"), field("d", HASH),
                field("e", {"type": "map", "values": "int"}), field("f", LINE), field("g", "double"),
                field("h", ID), field("i", ["int", "string"]), field("j", "int", default=1))
    )  # fmt: skip
    assert own.required_fields("Kinds") == {
        "a": ["number", "string"],
        "b": ["string"],
        "c": ["boolean"],
        "d": ["string"],
        "e": ["object"],
        "f": ["object"],
        "g": ["number"],
        "h": ["string"],
        "i": ["number", "string"],
    }
    assert own.fields("Kinds") == list("abcdefghij")
    with pytest.raises(UnknownEventType):
        own.required_fields("Kind")


def cut_to_millis(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


text = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), max_size=20)
VALUES = {
    "text": text,
    "whole": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "real": st.floats(allow_nan=False, allow_infinity=False),
    "yes": st.booleans(),
    "raw": st.binary(max_size=20),
    "price": st.integers(-(10**18) + 1, 10**18 - 1).map(lambda unscaled: Decimal(unscaled).scaleb(-4)),
    "at": st.datetimes(timezones=st.just(UTC)).map(cut_to_millis),
    "day": st.dates(),
    "id": st.uuids(),
    "maybe": st.none() | text,
    "many": st.lists(st.integers(0, 9), max_size=3),
    "named": st.dictionaries(text, st.integers(0, 9), max_size=3),
}  # fmt: skip
EVERY = codec(
    version(
        1,
        "Every",
        field("text", "string"),
        field("whole", "int"),
        field("long", "long"),
        field("real", "double"),
        field("yes", "boolean"),
        field("raw", "bytes"),
        field("price", DECIMAL),
        field("at", INSTANT),
        field("day", DAY),
        field("id", ID),
        field("maybe", ["null", "string"]),
        field("many", {"type": "array", "items": "int"}),
        field("named", {"type": "map", "values": "int"}),
    )
)


@given(st.fixed_dictionaries(VALUES))
def test_every_value_comes_back_and_its_json_form_means_the_same(data: dict[str, Any]) -> None:
    wire = EVERY.encode("Every", data)
    assert EVERY.decode(wire) == ("Every", data)
    again = json.loads(json.dumps(to_json(data)), parse_float=Decimal)
    assert EVERY.encode("Every", again) == wire


def test_numbers_in_json_keep_their_digits() -> None:
    data = from_json('{"value": 12345678901234.5678}')
    own = codec_of(DECIMAL)
    assert own.decode(own.encode("Thing", data))[1] == {"value": Decimal("12345678901234.5678")}
    assert from_json(b"[1, 2.50, true]") == [1, Decimal("2.50"), True]


@pytest.mark.parametrize("type", ["int", "long", "double", DECIMAL])
@pytest.mark.parametrize("number", ["9" * 131_072, "-" + "9" * 131_072, "0." + "1" * 16_383 + "e131071"])
def test_a_number_that_only_the_database_can_hold_is_read_and_refused(type: Any, number: str) -> None:
    data = from_json(f'{{"other": 1, "value": {number}}}')
    assert data.pop("other") == 1
    with pytest.raises(InvalidEvent) as caught:
        codec_of(type).encode("Thing", data)
    assert caught.value.field == "value"
    assert len(str(caught.value)) < 200


def test_json_that_is_nested_too_deep_is_read_and_refused() -> None:
    data = from_json('{"value": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(
        InvalidEvent, match=r"Thing\.data: expected an object, got JSON that is nested too deep"
    ):
        codec_of("int").encode("Thing", data)


def test_text_that_is_no_json_is_an_error() -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        from_json('{"a": x}')


def test_json_for_people_has_times_in_utc_and_no_nan() -> None:
    at = datetime(2026, 1, 31, 14, tzinfo=timezone(timedelta(hours=2)))
    assert to_json({"at": at, "real": float("nan"), "n": Decimal("1E+2"), "raw": b"\xff"}) == {
        "at": "2026-01-31T12:00:00Z",
        "real": "nan",
        "n": "100",
        "raw": "/w==",
    }
