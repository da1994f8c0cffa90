"""What the demo runs in: a database and a prefix of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from stream import database
from stream.config import Config
from stream.errors import StreamError
from stream.kafka.reader import delete_everything

DATABASE = "stream_demo_"


@contextmanager
def own_names(config: Config, groups: Sequence[str]) -> Iterator[Config]:
    """A new database and a new prefix; both, and all under them, are gone afterwards."""
    name = f"{DATABASE}{int(time.time())}_{os.getpid()}"
    own = _own(config, name)
    with ExitStack() as held:
        with _connected(config) as connection:
            # One demo at a time comes or goes.
            connection.execute("select pg_advisory_lock(hashtextextended(%s, 0))", [DATABASE])
            _remove_the_killed(connection, config, groups)
            try:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
            except psycopg.Error as error:
                raise StreamError(f"the demo wants a database of its own and gets none: {error}") from None
            held.enter_context(_connected(own))  # says that it is in use
        try:
            yield own
        finally:
            delete_everything(own, groups)
            with _connected(config) as connection:
                connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _remove_the_killed(connection: database.Connection, config: Config, groups: Sequence[str]) -> None:
    """What demos left that did not come to their end. One that runs is in use and stays."""
    for (old,) in connection.execute("select datname from pg_database").fetchall():
        if old.startswith(DATABASE):
            with suppress(psycopg.Error):
                connection.execute(sql.SQL("drop database {}").format(sql.Identifier(old)))
                delete_everything(_own(config, old), groups)


def _own(config: Config, name: str) -> Config:
    url = make_conninfo(config.database_url, dbname=name)
    return replace(config, database_url=url, prefix=f"{config.prefix}{name}.")


def _connected(config: Config) -> database.Connection:
    return database.connect(config.database_url, application_name="stream-demo", autocommit=True)
