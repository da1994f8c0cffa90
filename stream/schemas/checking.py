"""What is wrong with the schema files of a project. Changes nothing."""

from __future__ import annotations

from pathlib import Path

from stream.schemas import lockfile
from stream.schemas.catalog import Schema, SchemaCatalog
from stream.schemas.compatibility import unreadable


def check(folder: Path, catalog: SchemaCatalog) -> tuple[list[str], list[Schema]]:
    """One line for each version that does not read its predecessors, or changed once locked; and the files that have
    no line in the lock yet. Raises SchemaError where the lock cannot be read."""
    lock = lockfile.read_lock(folder / lockfile.FILE)
    return lockfile.broken(folder, catalog, lock) + unreadable(catalog), lockfile.unlocked(catalog, lock)
