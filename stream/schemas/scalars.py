"""The shapes of types without parts: Avro's primitives, its logical types, enum and fixed. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from stream.schemas import values
from stream.schemas.shapes import Shape
from stream.schemas.values import Lower

MILLI, MICRO = timedelta(milliseconds=1), timedelta(microseconds=1)


def _primitive(name: str, lower: Lower, json: str, native: type, *edges: Any, **more: Any) -> Shape:
    return Shape(
        branch=name,
        expected=more.pop("expected", name),
        lower=lower,
        plain=more.pop("plain", lower),
        wire=name,
        json=(json,),
        natives=(native,),
        edges=edges,
        **more,
    )


_INT = values.whole("int", values.INT)
_LONG = values.whole("long", values.LONG)
_FLOAT = values.real("float", values.FLOAT_MAX)
_DOUBLE = values.real("double")

PRIMITIVES: dict[str, Shape] = {
    shape.branch: shape
    for shape in (
        _primitive("null", values.lower_null, "null", type(None), None, floor=0, stops=False),
        _primitive("boolean", values.lower_boolean, "boolean", bool, False, True, stops=False),
        _primitive("int", _INT, "number", int, 0, *values.INT),
        _primitive("long", _LONG, "number", int, 0, *values.LONG),
        _primitive("float", _FLOAT, "number", float, 0.0, -1.5, values.FLOAT_MAX, floor=4, stops=False),
        _primitive("double", _DOUBLE, "number", float, 0.0, -1.5, 1e308, floor=8, stops=False),
        _primitive(
            "string", values.lower_text, "string", str, "", "a", "\u00e9\u20ac\U0001f4e6", expected="text"
        ),
        _primitive("bytes", values.lower_bytes, "string", bytes, b"", b"\x00\xff", plain=values.plain_bytes),
    )
}


def _logical(expected: str, lower: Lower, *natives: Any) -> tuple[str, Lower, tuple[Any, ...]]:
    return expected, lower, natives


_UTC_TIMES = (values.EPOCH, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
_TIMES = (values.LOCAL_EPOCH, datetime.min, datetime.max)

# Logical types without parameters, by Avro type and name: what messages call them, how they are lowered, and
# values at their edges.
LOGICAL = {
    ("long", "timestamp-millis"): _logical("a time with a zone", values.timestamp(MILLI), *_UTC_TIMES),
    ("long", "timestamp-micros"): _logical("a time with a zone", values.timestamp(MICRO), *_UTC_TIMES),
    ("long", "local-timestamp-millis"): _logical(
        "a time without a zone", values.local_timestamp(MILLI), *_TIMES
    ),
    ("long", "local-timestamp-micros"): _logical(
        "a time without a zone", values.local_timestamp(MICRO), *_TIMES
    ),
    ("int", "date"): _logical("a date", values.lower_date, date(1970, 1, 1), date.min, date.max),
    ("int", "time-millis"): _logical("a time of day", values.time_of_day(MILLI), time.min, time.max),
    ("long", "time-micros"): _logical("a time of day", values.time_of_day(MICRO), time.min, time.max),
    ("string", "uuid"): _logical("a UUID", values.lower_uuid, UUID(int=0), UUID(int=2**128 - 1)),
}


def logical(base: Shape, name: str) -> Shape | None:
    """A logical type on its base type; None where there is none of that name."""
    found = LOGICAL.get((base.branch, name))
    if found is None:
        return None
    expected, lower, natives = found
    return replace(
        base,
        expected=expected,
        lower=lower,
        json=("string",),
        natives=(type(natives[0]),),
        edges=tuple(lower(native) for native in natives),
    )


def decimal(base: Shape, precision: int, scale: int, size: int | None) -> Shape:
    """A decimal on `bytes` or, with a size, on `fixed`."""
    lower = values.decimal(precision, scale, size)
    most = Decimal(10**precision - 1).scaleb(-scale, Context(prec=precision))
    return replace(
        base,
        expected=values.decimal_text(precision, scale),
        lower=lower,
        json=("number", "string"),
        natives=(Decimal,),
        edges=tuple(lower(number) for number in (Decimal(0), most, most.copy_negate())),
    )


def enum(name: str, symbols: tuple[str, ...]) -> Shape:
    lower = values.symbol(symbols)
    return Shape(
        branch=name,
        expected=values.symbols_text(symbols),
        lower=lower,
        plain=lower,
        wire={"type": "enum", "name": name, "symbols": list(symbols)},
        json=("string",),
        natives=(str,),
        edges=symbols,
    )


def fixed(name: str, size: int) -> Shape:
    return Shape(
        branch=name,
        expected=f"{size} bytes",
        lower=values.sized(size, values.lower_bytes),
        plain=values.sized(size, values.plain_bytes),
        wire={"type": "fixed", "name": name, "size": size},
        json=("string",),
        natives=(bytes,),
        edges=(b"\x00" * size, b"\xff" * size),
        floor=size,
        stops=False,
    )
