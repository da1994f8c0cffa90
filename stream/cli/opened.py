"""What commands about groups begin with: the database, and the groups there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stream import database, overview
from stream.cli.common import project_of, say
from stream.config import Config
from stream.database import Connection
from stream.groupstate import require_known
from stream.overview import Known


@contextmanager
def opened(config: Config, name: str) -> Iterator[tuple[Connection, Known]]:
    """A migrated database, its session called `name`, and the groups; says what of them is not known."""
    with _migrated(config, name) as connection:
        known = overview.known_groups(connection, project_of(config))
        for note in known.notes:
            say(note)
        yield connection, known


@contextmanager
def opened_for(config: Config, name: str, group: str | None) -> Iterator[Connection]:
    """The same without the groups, once the one that is chosen, if one is, is known."""
    with _migrated(config, name) as connection:
        require_known(connection, project_of(config), group)
        yield connection


@contextmanager
def _migrated(config: Config, name: str) -> Iterator[Connection]:
    with database.connect(config.database_url, application_name=name, autocommit=True) as connection:
        database.require_migrated(connection)
        yield connection
