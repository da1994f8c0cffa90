"""One value of an Avro type: its Python or JSON form in, the form Avro writes out. Pure.

A caller in Python gives `Decimal("2.55")` and a `datetime`; a caller in SQL can only give JSON, so `"2.55"`
and `"2026-01-31T12:00:00Z"` mean the same. Each function here takes both and returns what goes on the wire
(whole numbers, bytes, text), or raises Misfit. They are on the path of every append.
"""

from __future__ import annotations

import base64
import json
import math
import re
from binascii import Error as Base64Error
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

from stream.schemas.misfit import Misfit, Shown

Lower = Callable[[Any], Any]

INT = (-(2**31), 2**31 - 1)
LONG = (-(2**63), 2**63 - 1)
FLOAT_MAX = 3.4028234663852886e38
MAX_PRECISION = 1000  # decimal digits, the most that a PostgreSQL numeric(p, s) can declare

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOCAL_EPOCH = datetime(1970, 1, 1)
DAY_ZERO = date(1970, 1, 1).toordinal()

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_LOCAL = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d{1,6})?", re.ASCII)


def lower_null(value: Any) -> None:
    if value is not None:
        raise Misfit("null", value)


def lower_boolean(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise Misfit("true or false", value)


def lower_text(value: Any) -> str:
    """Text that UTF-8, and a PostgreSQL `text` or `jsonb`, can hold: no lone surrogate, no NUL."""
    if not isinstance(value, str):
        raise Misfit("text", value)
    if "\x00" in value:
        raise Misfit("text without a NUL character", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Misfit("text without lone surrogates", value) from None
    return value


def whole(expected: str, bounds: tuple[int, int]) -> Lower:
    """Whole numbers from bounds[0] to bounds[1]. A bool is no number here, and 3.0 is not whole."""
    low, high = bounds

    def lower(value: Any) -> int:
        if not isinstance(value, int) or value is True or value is False:
            raise Misfit(expected, value)
        if low <= value <= high:
            return value
        raise Misfit(f"{expected} from {low} to {high}", value)

    return lower


def real(expected: str, limit: float = math.inf) -> Lower:
    """Finite floating point numbers; whole numbers and decimals are taken too."""

    def lower(value: Any) -> float:
        if not isinstance(value, (float, int, Decimal)) or value is True or value is False:
            raise Misfit(expected, value)
        try:
            number = float(value)
        except (OverflowError, ValueError):
            raise Misfit(f"{expected} in its range", value) from None
        if not math.isfinite(number):
            raise Misfit(f"a finite {expected}", value)
        if abs(number) > limit:
            raise Misfit(f"{expected} in its range", value)
        return number

    return lower


def lower_bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (Base64Error, ValueError):
            pass
    raise Misfit("bytes, or base64 text", value)


def plain_bytes(value: Any) -> bytes:
    """Bytes as a schema's `default` writes them: one character a byte (Avro specification)."""
    if isinstance(value, str):
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            pass
    raise Misfit("text of one character a byte", value)


def sized(size: int, lower: Lower) -> Lower:
    def lower_fixed(value: Any) -> bytes:
        result: bytes = lower(value)
        if len(result) != size:
            raise Misfit(f"{size} bytes", Shown(f"{len(result)} bytes"))
        return result

    return lower_fixed


def symbol(symbols: tuple[str, ...]) -> Lower:
    known = frozenset(symbols)

    def lower(value: Any) -> str:
        if isinstance(value, str) and value in known:
            return value
        raise Misfit(symbols_text(symbols), value)

    return lower


def symbols_text(symbols: tuple[str, ...]) -> str:
    return "one of " + ", ".join(symbols[:8]) + (", ..." if len(symbols) > 8 else "")


# -- logical types -----------------------------------------------------------------------------------------


def decimal(precision: int, scale: int, size: int | None = None) -> Lower:
    """Exact numbers of at most `precision` digits, `scale` of them decimals; big-endian two's complement.

    A float is taken by its shortest decimal text, so 2.55 is 2.55. Nothing is ever rounded.
    """
    # quantize() refuses what would lose a digit, and 1E+999999 without writing out its zeros.
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])
    unit = Decimal(1).scaleb(-scale)
    expected = decimal_text(precision, scale)
    quantize, scaleb = exact.quantize, exact.scaleb

    def lower(value: Any) -> bytes:
        number = value if type(value) is Decimal else _as_decimal(value, expected, precision)
        try:
            unscaled = int(scaleb(quantize(number, unit), scale))
        except (DecimalException, ValueError):
            raise Misfit(expected, value) from None
        return unscaled.to_bytes(size or (unscaled.bit_length() + 8) // 8, "big", signed=True)

    return lower


def decimal_text(precision: int, scale: int) -> str:
    return f"a number of at most {precision - scale} digits and {scale} decimals"


def _as_decimal(value: Any, expected: str, precision: int) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() <= 4 * precision:  # more cannot fit, and is slow to convert
            return Decimal(value)
    elif isinstance(value, float):
        if math.isfinite(value):
            return Decimal(repr(value))
    elif isinstance(value, str) and len(value) <= 2 * MAX_PRECISION and _NUMBER.fullmatch(value):
        return Decimal(value)
    raise Misfit(expected, value)


def timestamp(unit: timedelta) -> Lower:
    """Times with a zone; what is finer than `unit` is cut off."""
    expected = "a time with a zone, such as 2026-01-31T12:00:00Z"

    def lower(value: Any) -> int:
        try:
            if isinstance(value, str) and _RFC3339.fullmatch(value):
                value = datetime.fromisoformat(value.upper())
            if isinstance(value, datetime) and value.tzinfo is not None:
                return (value - EPOCH) // unit
        except (ValueError, OverflowError):
            pass
        raise Misfit(expected, value)

    return lower


def local_timestamp(unit: timedelta) -> Lower:
    """Times on some wall clock, without a zone."""
    expected = "a time without a zone, such as 2026-01-31T12:00:00"

    def lower(value: Any) -> int:
        try:
            if isinstance(value, str) and _LOCAL.fullmatch(value):
                value = datetime.fromisoformat(value.upper())
        except ValueError:
            pass
        if isinstance(value, datetime) and value.tzinfo is None:
            return (value - LOCAL_EPOCH) // unit
        raise Misfit(expected, value)

    return lower


def lower_date(value: Any) -> int:
    try:
        if isinstance(value, str) and _DATE.fullmatch(value):
            value = date.fromisoformat(value)
    except ValueError:
        pass
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - DAY_ZERO
    raise Misfit("a date, such as 2026-01-31", value)


def time_of_day(unit: timedelta) -> Lower:
    def lower(value: Any) -> int:
        try:
            if isinstance(value, str) and _TIME.fullmatch(value):
                value = time.fromisoformat(value)
        except ValueError:
            pass
        if isinstance(value, time) and value.tzinfo is None:
            return (datetime.combine(LOCAL_EPOCH, value) - LOCAL_EPOCH) // unit
        raise Misfit("a time of day, such as 12:00:00", value)

    return lower


def lower_uuid(value: Any) -> str:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, str) and _UUID.fullmatch(value):
        return value.lower()
    raise Misfit("a UUID", value)


# -- JSON --------------------------------------------------------------------------------------------------


def from_json(text: str | bytes) -> Any:
    """JSON whose numbers keep all their digits, and which a row of the database can never make fail.

    jsonb holds integers of 131,072 digits and thousands of nested lists; Python's reader refuses both, and a
    reader that raises while rows are fetched takes the good ones down too. Such values come back as something
    the codec refuses. Raises ValueError for text that is no JSON.
    """
    try:
        try:
            return json.loads(text, parse_float=Decimal)
        except ValueError:
            return json.loads(text, parse_float=Decimal, parse_int=_as_number)
    except RecursionError:
        return Shown("JSON that is nested too deep")


def _as_number(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= MAX_PRECISION else Decimal(digits)


def to_json(value: Any) -> Any:
    """Decoded data as JSON can say it: decimals, times and UUIDs as text, bytes as base64.

    What it returns is accepted by the codec again and means the same event.
    """
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat()
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no NaN; other producers may have written one
    return value
