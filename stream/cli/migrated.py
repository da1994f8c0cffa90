"""The database for commands that need nothing else. Apart from `opened.py`, which loads the Kafka client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stream import database
from stream.cli.common import project_of
from stream.config import Config
from stream.database import Connection
from stream.groupstate import require_known


@contextmanager
def migrated(config: Config, name: str) -> Iterator[Connection]:
    """A migrated database, its session called `name`."""
    with database.connect(config.database_url, application_name=name, autocommit=True) as connection:
        database.require_migrated(connection)
        yield connection


@contextmanager
def opened_for(config: Config, name: str, group: str | None) -> Iterator[Connection]:
    """The same, once the group that is chosen, if one is, is known."""
    with migrated(config, name) as connection:
        require_known(connection, project_of(config), group)
        yield connection
