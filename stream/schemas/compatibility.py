"""Does every version of an event read what all versions before it wrote? Shown by writing and reading. Pure.

Comparing field names would miss much of what breaks a consumer: a logical type that changed over the same
Avro type, a symbol taken out of an enum, a record inside a list. So values at the edges of each older schema
are written with it and read with the newer one, and what comes out must fit the newer one.
"""

from __future__ import annotations

from stream.schemas.catalog import Schema, SchemaCatalog
from stream.schemas.codec import DecodeError, Reader, Writer
from stream.schemas.misfit import Misfit


def unreadable(catalog: SchemaCatalog) -> list[str]:
    """One line for each version that does not read one of its predecessors; empty when all is well."""
    found = []
    for name in catalog.names():
        versions = catalog.versions(name)
        for index, written in enumerate(versions):
            for wanted in versions[index + 1 :]:
                problem = problem_reading(written, wanted)
                if problem is not None:
                    found.append(f"{wanted.path}: does not read {written.path.name}: {problem}")
    return found


def problem_reading(written: Schema, wanted: Schema) -> str | None:
    """Why `wanted` does not read what `written` wrote, or None."""
    writer, reader = Writer(written), Reader(written, wanted)
    for lowered in written.shape.edges:
        try:
            data = reader.read(writer.write_lowered(lowered))
        except DecodeError as error:
            return str(error.__cause__ or error)[:500]
        try:
            wanted.shape.lower(data)
        except Misfit as misfit:
            return f"{misfit.field}: expected {misfit.expected}, read {misfit.got}"
    return None
