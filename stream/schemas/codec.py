"""AvroCodec: events to wire bytes and back. The only user of fastavro.

Wire form, as with a Confluent schema registry: a zero byte, the schema's number as four bytes (big-endian),
the Avro body. Records of older versions are brought up to the latest of their name by Avro's resolution.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from decimal import Context, Decimal
from functools import lru_cache
from io import BytesIO
from struct import Struct
from struct import error as StructError
from typing import Any

import fastavro
from fastavro.read import LOGICAL_READERS

from stream.errors import InvalidEvent, SchemaError, StreamError
from stream.schemas.catalog import Schema, SchemaCatalog
from stream.schemas.decoders import decoder
from stream.schemas.misfit import Misfit
from stream.schemas.values import MAX_PRECISION

_HEADER = Struct(">BI")
_BODY = _HEADER.size


class DecodeError(StreamError):
    """Raised for bytes that are no event of ours; `reason` is one of REASONS."""

    REASONS = ("empty", "no-magic", "unknown-schema", "truncated", "trailing", "malformed")

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class AvroCodec:
    """Encodes and decodes the events of a catalog. Safe to share between threads."""

    def __init__(self, catalog: SchemaCatalog) -> None:
        self.catalog = catalog
        self._writers = {name: Writer(catalog.latest(name)) for name in catalog.names()}
        self._readers = {
            schema.number: Reader(schema, catalog.latest(schema.name)) for schema in catalog.versions()
        }

    def encode(self, type: str, data: Any) -> bytes:
        """The wire bytes of an event, whose data may be Python values or their JSON forms.

        Raises UnknownEventType, or InvalidEvent with the path of the value that does not fit.
        """
        writer = self._writers.get(type) or self._writers[self.catalog.latest(type).name]
        try:
            return writer.write(data)
        except Misfit as misfit:
            raise InvalidEvent(misfit.field, misfit.expected, misfit.got, type=type) from None

    def decode(self, value: bytes) -> tuple[str, dict[str, Any]]:
        """The event type and data of wire bytes, as the latest version of the type has it.

        Raises DecodeError for all that is no event of ours, in time and memory bounded by the bytes.
        """
        try:
            magic, number = _HEADER.unpack_from(value)
            reader = self._readers[number]
        except (StructError, KeyError):
            raise self._refused(value) from None
        if magic != 0:
            raise self._refused(value)
        return reader.name, reader.read(value)

    def schema_of(self, value: bytes) -> tuple[int | None, str | None]:
        """The schema number that wire bytes name, and its event type where it is known here; neither where they are
        none."""
        if len(value) < _BODY or value[0] != 0:
            return None, None
        number: int = _HEADER.unpack_from(value)[1]
        reader = self._readers.get(number)
        return number, None if reader is None else reader.name

    def required_fields(self, type: str) -> dict[str, list[str]]:
        """Fields an event must have: name -> what jsonb_typeof() may say of its value."""
        fields = self.catalog.latest(type).shape.fields
        return {field.name: list(field.shape.json) for field in fields if not field.optional}

    def fields(self, type: str) -> list[str]:
        """All fields that an event may have, in the schema's order."""
        return [field.name for field in self.catalog.latest(type).shape.fields]

    def _refused(self, value: bytes) -> DecodeError:
        """Why the first five bytes are not those of an event."""
        if not value:
            return DecodeError("empty", "the value is empty")
        if value[0] == 1:
            return DecodeError("no-magic", "the value begins with 1 (a schema GUID); expected 0 and a number")
        if value[0] != 0:
            return DecodeError(
                "no-magic", f"the value begins with {value[0]}; expected 0 and a schema number"
            )
        if len(value) < _BODY:
            return DecodeError("truncated", f"{len(value)} bytes are too few to hold a schema number")
        number = _HEADER.unpack_from(value)[1]
        return DecodeError("unknown-schema", f"there is no schema number {number} here")


class Writer:
    """Writes events with one schema."""

    def __init__(self, schema: Schema) -> None:
        self._header = _HEADER.pack(0, schema.number)
        self._lower = schema.shape.lower
        self._wire = fastavro.parse_schema(schema.shape.wire)

    def write(self, data: Any) -> bytes:
        """Wire bytes of an event's data; raises Misfit."""
        return self.write_lowered(self._lower(data))

    def write_lowered(self, lowered: Any) -> bytes:
        """Wire bytes of what the schema's shape has lowered."""
        stream = BytesIO()
        stream.write(self._header)
        fastavro.schemaless_writer(stream, self._wire, lowered)
        return stream.getvalue()


class Reader:
    """Reads what one schema wrote as another version of the same event has it."""

    def __init__(self, written: Schema, wanted: Schema) -> None:
        self.name = wanted.name
        self._number = written.number
        self._written = _readable(written)
        self._wanted = None if wanted.definition == written.definition else _readable(wanted)
        self._decode = decoder(self._written, LOGICAL_READERS) if self._wanted is None else None
        self._stream = _StrictBytes if self._wanted is not None and written.shape.endless else BytesIO
        # A default that a handler could change in place must not be shared by all events.
        self._copy = self._wanted is not None and any(
            field.optional and _mutable(field.default)
            for shape in wanted.named.values()
            for field in shape.fields
        )

    def read(self, value: bytes) -> dict[str, Any]:
        """The data of wire bytes, whose first five were looked at already; raises DecodeError."""
        if self._decode is not None:
            try:
                data, end = self._decode(value, _BODY)
            except MemoryError:
                raise  # of this process, not of these bytes: they never ask for more than their own length
            except Exception:  # noqa: BLE001  # fastavro says what is wrong
                end = -1
            if end == len(value):
                return data
        return self._read_any(value)

    def _read_any(self, value: bytes) -> dict[str, Any]:
        """The same with fastavro, which knows all that Avro allows, and older versions.

        One byte more than there are is laid out. fastavro does not notice every end that comes too early, but
        where it reads past the last byte it has eaten that one, so the position afterwards tells.
        """
        stream = self._stream(value[_BODY:] + b"\0")
        size = len(value) - _BODY
        try:
            data = fastavro.schemaless_reader(stream, self._written, self._wanted)
        except MemoryError:
            raise  # as above
        except Exception as error:
            raise self._malformed(error, stream.tell() > size) from error
        if stream.tell() != size:
            raise self._ends_wrong(stream.tell(), size)
        if not isinstance(data, dict):
            raise DecodeError("malformed", f"{self.name} (schema {self._number}) is no record")
        return deepcopy(data) if self._copy else data

    def _malformed(self, error: Exception, at_end: bool) -> DecodeError:
        if at_end or isinstance(error, EOFError):
            return self._truncated()
        what = str(error)[:200] or type(error).__name__
        return DecodeError("malformed", f"the value is no {self.name} (schema {self._number}): {what}")

    def _ends_wrong(self, position: int, size: int) -> DecodeError:
        if position > size:
            return self._truncated()
        spare = size - position
        return DecodeError("trailing", f"{spare} bytes follow the end of {self.name} (schema {self._number})")

    def _truncated(self) -> DecodeError:
        return DecodeError("truncated", f"the value ends inside {self.name} (schema {self._number})")


class _StrictBytes(BytesIO):
    """Bytes whose end is noticed at once (slower; only where Shape.endless says so)."""

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        if len(found) != size:
            raise EOFError
        return found


# -- reading with fastavro ----------------------------------------------------------------------------------

# fastavro rounds a decimal of too many digits to another number, and takes a minute over 900 kB of them.
_CHECKED_DECIMAL = "stream-decimal"
_EXACT = Context(prec=MAX_PRECISION)
_SHORT = 16  # bytes of a decimal worth remembering


def _decimal_reader(precision: int, scale: int) -> Callable[..., Decimal]:
    """Reads decimals of one type. Prices come again and again, so it remembers a few thousand short ones."""
    limit, unit = 10**precision, Decimal(1).scaleb(-scale, _EXACT)

    def read(data: bytes) -> Decimal:
        unscaled = int.from_bytes(data, "big", signed=True)
        if not -limit < unscaled < limit:
            raise ValueError(f"a decimal of more than {precision} digits")
        return _EXACT.multiply(unscaled, unit)

    remembered = lru_cache(maxsize=4096)(read)
    # fastavro gives the schemas of both sides, too
    return lambda data, *_: remembered(data) if len(data) <= _SHORT else read(data)


@lru_cache
def _checked_decimal(kind: str, precision: int, scale: int) -> str:
    """The logical type that has its reader: one for each precision and scale."""
    name = f"{_CHECKED_DECIMAL}-{precision}-{scale}"
    LOGICAL_READERS[f"{kind}-{name}"] = _decimal_reader(precision, scale)
    return name


def _readable(schema: Schema) -> Any:
    """The definition as fastavro reads with it: our decimals, and defaults as handlers are to see them."""
    parsed = fastavro.parse_schema(_with_checked_decimals(schema.definition))
    assert isinstance(parsed, dict)
    named = parsed["__named_schemas"]
    for name, definition in named.items():
        for entry, compiled in zip(definition.get("fields", ()), schema.named[name].fields, strict=True):
            if not compiled.optional:
                continue
            try:
                entry["default"] = _native(entry["type"], compiled.default, named)
            except (ValueError, ArithmeticError) as error:
                message = f"{name}.{compiled.name}: the default is outside its logical type: {error}"
                raise SchemaError(str(schema.path), message) from None
    return parsed


def _with_checked_decimals(definition: Any) -> Any:
    if isinstance(definition, list):
        return [_with_checked_decimals(item) for item in definition]
    if not isinstance(definition, dict):
        return definition
    copy = {
        key: item if key == "default" else _with_checked_decimals(item) for key, item in definition.items()
    }
    kind = copy.get("type")  # Avro ignores the logical type where it does not belong
    if copy.get("logicalType") == "decimal" and kind in ("bytes", "fixed") and "precision" in copy:
        copy["logicalType"] = _checked_decimal(kind, copy["precision"], copy.get("scale", 0))
    return copy


def _native(definition: Any, lowered: Any, named: dict[str, Any]) -> Any:
    """A lowered default as decoding would give it; fastavro hands out the schema's JSON as it stands."""
    if isinstance(definition, list):
        branch, value = lowered
        return next(_native(item, value, named) for item in definition if _branch(item) == branch)
    if isinstance(definition, str):
        return _native(named[definition], lowered, named) if definition in named else lowered
    kind = definition["type"]
    if kind == "record":
        fields = definition["fields"]
        return {item["name"]: _native(item["type"], lowered[item["name"]], named) for item in fields}
    if kind == "array":
        return [_native(definition["items"], item, named) for item in lowered]
    if kind == "map":
        return {name: _native(definition["values"], item, named) for name, item in lowered.items()}
    read = LOGICAL_READERS.get(f"{kind}-{definition.get('logicalType')}")
    return lowered if read is None else read(lowered, definition, None)


def _mutable(lowered: Any) -> bool:
    value = lowered[1] if isinstance(lowered, tuple) else lowered  # a union's: (branch, value)
    return isinstance(value, (list, dict))


def _branch(definition: Any) -> str:
    if isinstance(definition, str):
        return definition
    name: str = definition.get("name", definition["type"])
    return name
