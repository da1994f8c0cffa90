"""The lock: which schema files may not change any more. `schemas/schemas.lock`, one line a file.

Records on the topics carry a schema's number for as long as they are kept; a file changed afterwards would
read them as something else, without an error. Lines are only ever added, so a change to one shows in review.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from stream.errors import SchemaError
from stream.schemas.catalog import Schema, SchemaCatalog

FILE = "schemas.lock"
HEADER = """\
# Schema files that may not change, as records carry their numbers: number, name, sha256 of the JSON.
# `stream schema check` adds lines and never changes one.
"""

_LINE = re.compile(r"(\d{4,10}) ([A-Za-z_][A-Za-z0-9_]*) ([0-9a-f]{64})")

Lock = Mapping[int, tuple[str, str]]  # number -> (name, sha256)


def read_lock(path: Path) -> Lock:
    """The lines of a lock file, none where there is no file; raises SchemaError naming the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(str(path), f"cannot be read: {error}") from error
    lock: dict[int, tuple[str, str]] = {}
    for index, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise SchemaError(str(path), f"line {index}: expected number, name and sha256")
        if int(match[1]) in lock:
            raise SchemaError(str(path), f"line {index}: number {match[1]} stands there twice")
        lock[int(match[1])] = (match[2], match[3])
    return lock


def broken(folder: Path, catalog: SchemaCatalog, lock: Lock) -> list[str]:
    """One line for each locked file that changed or is gone."""
    found = []
    present = {schema.number: schema for schema in catalog.versions()}
    for number, (name, digest) in lock.items():
        schema = present.get(number)
        if schema is None or schema.name != name:
            path = folder / f"{number:04d}-{name}.avsc"
            found.append(f"{path}: is gone, but locked; records may carry its number")
        elif fingerprint(schema) != digest:
            instead = f"put it back and make the change in a new version (stream schema new {name})"
            found.append(f"{schema.path}: changed after it was locked; {instead}")
    return found


def unlocked(catalog: SchemaCatalog, lock: Lock) -> list[Schema]:
    """The files that have no line yet."""
    return [schema for schema in catalog.versions() if schema.number not in lock]


def add(path: Path, schemas: Iterable[Schema]) -> None:
    """Append a line for each schema; raises SchemaError when the file cannot be written."""
    text = path.read_text(encoding="utf-8") if path.exists() else HEADER
    if not text.endswith("\n"):
        text += "\n"
    lines = [f"{schema.number:04d} {schema.name} {fingerprint(schema)}\n" for schema in schemas]
    try:
        path.write_text(text + "".join(lines), encoding="utf-8", newline="\n")
    except OSError as error:
        raise SchemaError(str(path), f"cannot be written: {error.strerror}") from error


def fingerprint(schema: Schema) -> str:
    """SHA-256 of the definition; white space and line ends, which tools may change, do not count."""
    canonical = json.dumps(schema.definition, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
