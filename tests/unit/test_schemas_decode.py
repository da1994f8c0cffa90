"""Bytes from a topic are hostile: each kind of bad bytes is one DecodeError, soon, and in little memory."""

from __future__ import annotations

import time
import tracemalloc
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.schemas import AvroCodec, DecodeError
from stream.schemas.codec import Writer
from tests.support.avro import DECIMAL, INSTANT, codec, codec_of, field, version

FIXED = {"type": "fixed", "name": "Hash", "size": 16}
POINT = {"type": "record", "name": "Point", "fields": [field("hash", "Hash"), field("on", "boolean")]}
EVERYTHING = [
    field("text", "string"),
    field("whole", "int"),
    field("real", "double"),
    field("small", "float"),
    field("yes", "boolean"),
    field("raw", "bytes"),
    field("price", DECIMAL),
    field("hash", FIXED),
    field("suit", {"type": "enum", "name": "Suit", "symbols": ["red", "black"]}),
    field("maybe", ["null", "string", "Hash"]),
    field("at", INSTANT),
    field("day", {"type": "int", "logicalType": "date"}),
    field("clock", {"type": "int", "logicalType": "time-millis"}),
    field("id", {"type": "string", "logicalType": "uuid"}),
    field("reals", {"type": "array", "items": "double"}),
    field("flags", {"type": "array", "items": "boolean"}),
    field("hashes", {"type": "array", "items": "Hash"}),
    field("points", {"type": "array", "items": POINT}),
    field("named", {"type": "map", "values": "null"}),
    field("lines", {"type": "array", "items": {"type": "array", "items": "string"}}),
]
# Thing has a second version, so that most fields of the first are skipped; Plain is read as it is.
SMALL = field("small", "float")
THING, PLAIN = version(1, "Thing", *EVERYTHING), version(3, "Plain", *EVERYTHING)
BOTH = codec(THING, version(2, "Thing", SMALL, field("new", "string", default="x")), PLAIN)
VALID = [Writer(schema).write_lowered(lowered) for schema in (THING, PLAIN) for lowered in schema.shape.edges]


def refused(own: AvroCodec, value: bytes) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        own.decode(value)
    return caught.value


def varint(number: int) -> bytes:
    """Zig-zag, as Avro writes a count."""
    number = (number << 1) ^ (number >> 63)
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize(
    ("value", "reason", "words"),
    [
        (b"", "empty", "the value is empty"),
        (b"\x01" + bytes(16), "no-magic", "begins with 1 (a schema GUID)"),
        (b'{"order": 1}', "no-magic", "begins with 123"),
        (b"\x01\x00\x00\x00\x01\x00", "no-magic", "begins with 1 (a schema GUID)"),
        (b"\x07\x00\x00\x00\x01\x00", "no-magic", "begins with 7"),
        (b"\x00\x00\x00", "truncated", "3 bytes are too few"),
        (b"\x00\x00\x00\x12\x67", "unknown-schema", "no schema number 4711"),
        (b"\x00\xff\xff\xff\xff", "unknown-schema", "no schema number 4294967295"),
        (b"\x00\x00\x00\x00\x01", "truncated", "ends inside Thing (schema 1)"),
        (b"\x00\x00\x00\x00\x01\x06ab", "truncated", "ends inside Thing"),
        (b"\x00\x00\x00\x00\x01\x06abcd", "trailing", "1 bytes follow the end of Thing"),
        (b"\x00\x00\x00\x00\x01\x04\xff\xfe", "malformed", "is no Thing (schema 1): 'utf-8' codec"),
        (b"\x00\x00\x00\x00\x01\x03ab", "truncated", "ends inside Thing"),
    ],
)  # fmt: skip
def test_bad_bytes_say_why(value: bytes, reason: str, words: str) -> None:
    error = refused(codec_of("string"), value)
    assert error.reason == reason
    assert reason in DecodeError.REASONS
    assert words in str(error)


@pytest.mark.parametrize("value", VALID)
def test_every_shorter_value_is_truncated_and_every_longer_one_trails(value: bytes) -> None:
    for size in range(len(value)):
        assert refused(BOTH, value[:size]).reason in ("truncated", "empty")
    assert refused(BOTH, value + b"\x00").reason == "trailing"


@pytest.mark.parametrize("count", [10**9, -(10**9), 2**62, -(2**62), 2**63 - 1, -(2**63) + 1])
@pytest.mark.parametrize("name", ["reals", "flags", "hashes", "points", "named", "lines"])
@pytest.mark.parametrize("newer", [False, True])
def test_a_count_of_a_billion_in_a_few_bytes_fails_at_once(newer: bool, name: str, count: int) -> None:
    """The newer version lacks the field; fastavro then skips the items without seeing the end."""
    more = [version(2, "Thing", field("new", "int", default=1))] if newer else []
    before = [field("hash", FIXED), field(name, next(f["type"] for f in EVERYTHING if f["name"] == name))]
    own = codec(version(1, "Thing", *before), *more)
    value = b"\x00\x00\x00\x00\x01" + bytes(16) + varint(count) + varint(5) + b"abc"
    tracemalloc.start()
    started = time.monotonic()
    refused(own, value)
    seconds, (_, peak) = time.monotonic() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 1
    assert peak < 1_000_000


@pytest.mark.parametrize("type", ["string", "bytes", DECIMAL, {"type": "map", "values": "int"}])
@pytest.mark.parametrize("length", [2**40, 2**62, -1, -(2**62)])
def test_a_length_beyond_the_bytes_fails_at_once(type: Any, length: int) -> None:
    tracemalloc.start()
    refused(codec_of(type), b"\x00\x00\x00\x00\x01" + varint(length) + b"abc")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_decimal_of_too_many_digits_is_refused_and_not_rounded() -> None:
    own = codec_of(DECIMAL)
    most = (10**18 - 1).to_bytes(8, "big", signed=True)
    assert own.decode(b"\x00\x00\x00\x00\x01\x10" + most) == (
        "Thing",
        {"value": Decimal("99999999999999.9999")},
    )
    more = (10**18).to_bytes(8, "big", signed=True)
    assert refused(own, b"\x00\x00\x00\x00\x01\x10" + more).reason == "malformed"


def test_a_decimal_of_a_megabyte_takes_no_time() -> None:
    started = time.monotonic()
    error = refused(codec_of(DECIMAL), b"\x00\x00\x00\x00\x01" + varint(900_000) + b"\x7f" * 900_000)
    assert error.reason == "malformed"
    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    ("type", "body"),
    [
        (["null", "string"], varint(7)),
        ({"type": "enum", "name": "Suit", "symbols": ["red"]}, varint(1)),
        (INSTANT, varint(2**62)),
        ({"type": "int", "logicalType": "date"}, varint(2**31 - 1)),
        ({"type": "int", "logicalType": "time-millis"}, varint(2**31 - 1)),
        ({"type": "string", "logicalType": "uuid"}, b"\x04no"),
        ("string", varint(2) + b"\xc3\x28"),
        ({"type": "map", "values": "int"}, varint(1) + b"\x02\xff\x00\x00"),
    ],
)  # fmt: skip
def test_values_outside_their_type_are_malformed(type: Any, body: bytes) -> None:
    assert refused(codec_of(type), b"\x00\x00\x00\x00\x01" + body).reason == "malformed"


@settings(max_examples=300, deadline=500)
@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(value: bytes) -> None:
    for head in (b"", b"\x00\x00\x00\x00\x01", b"\x00\x00\x00\x00\x02", b"\x00\x00\x00\x00\x03"):
        decode_or_refuse(head + value)


@settings(max_examples=500, deadline=500)
@given(
    value=st.sampled_from(VALID),
    cuts=st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 12), st.binary(max_size=12)), min_size=1, max_size=4
    ),
)
def test_mutated_bytes_raise_nothing_else(value: bytes, cuts: list[tuple[int, int, bytes]]) -> None:
    for start, size, put in cuts:
        start = 5 + start % len(value)
        value = value[:start] + put + value[start + size :]
    decode_or_refuse(value)


def decode_or_refuse(value: bytes) -> None:
    try:
        name, data = BOTH.decode(value)
    except DecodeError as error:
        assert error.reason in DecodeError.REASONS
        assert len(str(error)) < 400
    else:
        assert name in ("Thing", "Plain")
        assert isinstance(data, dict)
