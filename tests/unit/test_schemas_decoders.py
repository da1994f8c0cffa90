"""The functions made of schemas read what fastavro reads, and nothing that it does not."""

from __future__ import annotations

from io import BytesIO
from itertools import count
from typing import Any

import fastavro
import pytest
from fastavro.read import LOGICAL_READERS
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.schemas.codec import Writer
from stream.schemas.decoders import Decoder, decoder
from tests.support.avro import DECIMAL, INSTANT, codec_of, field, version

LEAVES = [
    "null", "boolean", "int", "long", "float", "double", "string", "bytes", DECIMAL, INSTANT,
    {"type": "int", "logicalType": "date"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "fixed", "size": 5},
    {"type": "fixed", "size": 6, "logicalType": "decimal", "precision": 6, "scale": 2},
    {"type": "enum", "symbols": ["red", "black"]},
]  # fmt: skip


def larger(types: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        types.map(lambda type: {"type": "map", "values": type}),
        # Null has no bytes, and arrays of such are refused.
        types.map(lambda type: {"type": "array", "items": ["string", {"type": "record", "fields": [type]}]}),
        st.lists(types, max_size=3).map(lambda parts: {"type": "record", "fields": parts}),
        types.map(lambda type: ["null", {"type": "record", "fields": [type]}, "int"]),
    )


TYPES = st.recursive(st.sampled_from(LEAVES), larger, max_leaves=6)


def named(type: Any, numbers: count[int]) -> Any:
    """The type with a name wherever one is needed."""
    if isinstance(type, list):
        return [named(branch, numbers) for branch in type]
    if not isinstance(type, dict):
        return type
    parts = {part: named(type[part], numbers) for part in ("items", "values") if part in type}
    if type["type"] == "record":
        fields = [field(f"f{n}", named(part, numbers)) for n, part in enumerate(type["fields"])]
        parts["fields"] = fields
    if type["type"] in ("record", "fixed", "enum"):
        parts["name"] = f"Named{next(numbers)}"
    return type | parts


def made(type: Any) -> tuple[Any, Decoder, list[bytes]]:
    """An event whose one field is of this type: fastavro's schema, our function, and the wire bytes of some values."""
    schema = version(1, "Thing", field("value", type))
    parsed = fastavro.parse_schema(schema.definition)
    assert isinstance(parsed, dict)
    written = [Writer(schema).write_lowered(lowered) for lowered in schema.shape.edges]
    return parsed, decoder(parsed, LOGICAL_READERS), written


def by_fastavro(parsed: Any, value: bytes) -> tuple[Any, int]:
    stream = BytesIO(value)
    stream.seek(5)
    data = fastavro.schemaless_reader(stream, parsed, None)
    return data, stream.tell()


@settings(max_examples=300, deadline=None)
@given(TYPES)
def test_what_was_written_is_read_as_fastavro_reads_it(type: Any) -> None:
    parsed, decode, written = made(named(type, count()))
    for value in written:
        # Texts tell 0.0 from -0.0 and 1 from True, and one nan is as another.
        assert repr(decode(value, 5)) == repr(by_fastavro(parsed, value))


@settings(max_examples=300, deadline=None)
@given(TYPES, st.data())
def test_what_is_read_to_the_end_of_any_bytes_is_what_fastavro_reads(type: Any, data: st.DataObject) -> None:
    parsed, decode, written = made(named(type, count()))
    value = data.draw(st.sampled_from(written))
    start, size = data.draw(st.integers(5, len(value))), data.draw(st.integers(0, 4))
    value = value[:start] + data.draw(st.binary(max_size=6)) + value[start + size :]
    try:
        read, end = decode(value, 5)
    except Exception:  # noqa: BLE001  # then fastavro reads it
        return
    if end == len(value):
        assert repr((read, end)) == repr(by_fastavro(parsed, value))


def test_the_same_record_twice_and_lists_in_lists_are_read() -> None:
    point = {
        "type": "record",
        "name": "a.b.Point",
        "fields": [field("x", "int"), field("y", ["null", "float"])],
    }
    deep: Any = "a.b.Point"
    for _ in range(40):  # deeper than the loops of a function may be nested
        deep = {"type": "array", "items": deep}
    parsed, decode, written = made([point, deep])
    for value in written:
        assert decode(value, 5) == by_fastavro(parsed, value)


@pytest.mark.parametrize(
    ("type", "body", "expected"),
    [
        ("long", b"\xff" * 9 + b"\x01", -(2**63)),
        ("long", b"\xfe" + b"\xff" * 8 + b"\x01", 2**63 - 1),
        ("long", b"\x82\x80\x00", 1),
        ("long", b"\x80" * 9 + b"\x03", 2**62),  # of its 66 bits the lowest 64
        ({"type": "array", "items": "string"}, b"\x03\x08\x02a\x02b\x02\x02c\x00", ["a", "b", "c"]),
        ({"type": "map", "values": "int"}, b"\x01\x06\x02a\x04\x02\x02b\x06\x00", {"a": 2, "b": 3}),
    ],
)
def test_what_is_right_but_rare_is_read_too(type: Any, body: bytes, expected: Any) -> None:
    """Blocks that tell their size in bytes, numbers of ten bytes, or of more bytes than they need."""
    assert codec_of(type).decode(b"\x00\x00\x00\x00\x01" + body)[1] == {"value": expected}
