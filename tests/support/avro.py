"""Catalogs of schemas made up by a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stream.schemas import AvroCodec, Schema, SchemaCatalog

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4}
INSTANT = {"type": "long", "logicalType": "timestamp-millis"}


def version(number: int, name: str, *fields: dict[str, Any]) -> Schema:
    """A schema of these fields, as if it had been read from a file."""
    definition = {"type": "record", "name": name, "fields": list(fields)}
    return Schema(number, name, Path(f"schemas/{number:04d}-{name}.avsc"), definition)


def field(name: str, type: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **more}


def codec(*schemas: Schema) -> AvroCodec:
    return AvroCodec(SchemaCatalog(schemas))


def codec_of(type: Any) -> AvroCodec:
    """A codec with one event `Thing`, whose one field `value` is of this type."""
    return codec(version(1, "Thing", field("value", type)))
