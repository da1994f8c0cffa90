"""SchemaCatalog: all versions of all event types of a project, from `schemas/NNNN-Name.avsc`.

Numbers are given like those of migrations and are never reused: they are the ids on the wire. So a file must
not change once records may have been written with it. The highest number of a name is what handlers see.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from stream.errors import SchemaError, UnknownEventType
from stream.schemas.definitions import BadDefinition, compile_event
from stream.schemas.misfit import show
from stream.schemas.shapes import Shape

FILE_NAME = re.compile(r"(\d{4,10})-([A-Za-z_][A-Za-z0-9_]*)\.avsc")
MAX_NUMBER = 2**31 - 1  # ids are signed in Confluent's clients


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
            raise SchemaError(str(folder), "no such folder", hint="stream init DIR   (makes one)")
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
