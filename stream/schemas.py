"""SchemaCatalog: the numbered Avro files. AvroCodec: events to wire bytes and back. Only user of fastavro.

Wire form: a zero byte, the schema's number as four bytes (big-endian), the Avro body; the same as a Confluent
schema registry's. Numbers are given like those of migrations and never reused, so a file must not change once
records may have been written with it. Handlers see the highest number of a name; older records are brought up
by Avro's schema resolution.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Context, Decimal
from difflib import get_close_matches
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import Any

import fastavro
from fastavro.read import LOGICAL_READERS

from stream.definitions import BadDefinition, compile_event
from stream.errors import InvalidEvent, SchemaError, StreamError, UnknownEventType
from stream.shapes import Shape
from stream.values import MAX_PRECISION, Misfit, show
from stream.values import to_json as to_json

FILE_NAME = re.compile(r"(\d{4,10})-([A-Za-z_][A-Za-z0-9_]*)\.avsc")
MAX_NUMBER = 2**31 - 1  # ids are signed in Confluent's clients

_HEADER = Struct(">BI")
_BODY = _HEADER.size


class DecodeError(StreamError):
    """Raised for bytes that are no event of ours; `reason` is one of REASONS."""

    REASONS = ("empty", "no-magic", "unknown-schema", "truncated", "trailing", "malformed")

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of an event type. `number` is its id on the wire; raises SchemaError when it is wrong."""

    number: int
    name: str
    path: Path
    definition: dict[str, Any] = field(repr=False)
    shape: Shape = field(init=False, repr=False, compare=False)
    # Every type that the definition names, by full name.
    named: dict[str, Shape] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            shape, named = compile_event(self.definition)
        except BadDefinition as bad:
            raise SchemaError(str(self.path), str(bad)) from None
        found = shape.branch.rpartition(".")[2]
        if found != self.name:
            raise SchemaError(
                str(self.path), f"name: expected {self.name}, as in the file's name, got {found}"
            )
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "named", named)


class SchemaCatalog:
    """All versions of all event types of a project."""

    def __init__(self, schemas: Iterable[Schema]) -> None:
        self._by_number: dict[int, Schema] = {}
        self._latest: dict[str, Schema] = {}
        for schema in sorted(schemas, key=lambda schema: (schema.number, schema.path)):
            if schema.number in self._by_number:
                other = self._by_number[schema.number].path.name
                raise SchemaError(str(schema.path), f"number {schema.number} is taken by {other}")
            self._by_number[schema.number] = schema
            self._latest[schema.name] = schema

    @classmethod
    def load(cls, folder: Path) -> SchemaCatalog:
        """Read all `NNNN-Name.avsc` of a folder; raises SchemaError naming the file and the place in it."""
        if not folder.is_dir():
            raise SchemaError(str(folder), "no such folder", hint="stream init DIR  makes a new project")
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".avsc" and path.name[0] != ".")
        return cls(read_schema(path) for path in paths)

    def names(self) -> list[str]:
        """The event types, in alphabetical order."""
        return sorted(self._latest)

    def versions(self, name: str | None = None) -> list[Schema]:
        """All versions of an event type, or of all, by number."""
        return [schema for schema in self._by_number.values() if name is None or schema.name == name]

    def latest(self, name: str) -> Schema:
        """The version that handlers see and that is written; raises UnknownEventType."""
        found = self._latest.get(name)
        if found is None:
            near = get_close_matches(name, self._latest, 1) if isinstance(name, str) else []
            meant = f" (did you mean {near[0]}?)" if near else ""
            expected = "one of " + (", ".join(self.names()) or "none: there is no schema yet")
            raise UnknownEventType("type", expected, show(name) + meant)
        return found

    def by_number(self, number: int) -> Schema:
        """Raises KeyError when there is none."""
        return self._by_number[number]


def read_schema(path: Path) -> Schema:
    """Read one numbered file; raises SchemaError."""
    match = FILE_NAME.fullmatch(path.name)
    if match is None or not 1 <= int(match[1]) <= MAX_NUMBER:
        raise SchemaError(str(path), "expected a name such as 0001-OrderPlaced.avsc")
    try:
        definition = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SchemaError(str(path), f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SchemaError(str(path), f"is no JSON: {error}") from None
    if not isinstance(definition, dict):
        raise SchemaError(str(path), "expected a JSON object")
    return Schema(int(match[1]), match[2], path, definition)


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
        try:
            return self._writers[self.catalog.latest(type).name].write(data)
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
        """Wire bytes; raises Misfit."""
        lowered = self._lower(data)
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
        self._stream = _StrictBytes if self._wanted is not None and written.shape.endless else BytesIO
        # A default that a handler could change in place must not be shared by all events.
        self._copy = self._wanted is not None and any(
            field.optional and isinstance(field.default, (list, dict))
            for shape in wanted.named.values()
            for field in shape.fields
        )

    def read(self, value: bytes) -> dict[str, Any]:
        """The data of wire bytes, whose first five were looked at already; raises DecodeError.

        One byte more than there are is laid out. fastavro does not notice every end that comes too early, but
        where it reads past the last byte it has eaten that one, so the position afterwards tells.
        """
        stream = self._stream(value[_BODY:] + b"\0")
        size = len(value) - _BODY
        try:
            data = fastavro.schemaless_reader(stream, self._written, self._wanted)
        except MemoryError:
            raise  # of this process, not of these bytes: they never ask for more than their own length
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


def _read_decimal(data: bytes, written: Any = None, wanted: Any = None) -> Decimal:
    unscaled = int.from_bytes(data, "big", signed=True)
    limit, unit = _decimal(written["precision"], written.get("scale", 0))
    if not -limit < unscaled < limit:
        raise ValueError(f"a decimal of more than {written['precision']} digits")
    return _EXACT.multiply(unscaled, unit)


@lru_cache
def _decimal(precision: int, scale: int) -> tuple[int, Decimal]:
    return 10**precision, Decimal(1).scaleb(-scale, _EXACT)


for _base in ("bytes", "fixed"):
    LOGICAL_READERS[f"{_base}-{_CHECKED_DECIMAL}"] = _read_decimal


def _readable(schema: Schema) -> Any:
    """The definition as fastavro reads with it: our decimals, and defaults as handlers are to see them."""
    parsed = fastavro.parse_schema(_with_checked_decimals(schema.definition))
    assert isinstance(parsed, dict)
    named = parsed["__named_schemas"]
    for name, definition in named.items():
        for entry, compiled in zip(definition.get("fields", ()), schema.named[name].fields, strict=True):
            if compiled.optional:
                entry["default"] = _native(entry["type"], compiled.default, named)
    return parsed


def _with_checked_decimals(definition: Any) -> Any:
    if isinstance(definition, list):
        return [_with_checked_decimals(item) for item in definition]
    if not isinstance(definition, dict):
        return definition
    copy = {
        key: item if key == "default" else _with_checked_decimals(item) for key, item in definition.items()
    }
    if copy.get("logicalType") == "decimal":
        copy["logicalType"] = _CHECKED_DECIMAL
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


def _branch(definition: Any) -> str:
    if isinstance(definition, str):
        return definition
    name: str = definition.get("name", definition["type"])
    return name
