"""What commands about groups begin with: the database, and the groups there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stream import overview
from stream.cli.common import project_of, say
from stream.cli.migrated import migrated
from stream.config import Config
from stream.database import Connection
from stream.overview import Known


@contextmanager
def opened(config: Config, name: str) -> Iterator[tuple[Connection, Known]]:
    """A migrated database, its session called `name`, and the groups; says what of them is not known."""
    with migrated(config, name) as connection:
        known = overview.known_groups(connection, project_of(config))
        for note in known.notes:
            say(note)
        yield connection, known
