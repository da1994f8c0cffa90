"""PostgreSQL: the only place that opens connections, and the home of migrations and named queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString, TypeVar, overload

import psycopg
from psycopg import errors as pg

from stream.config import shown_address
from stream.errors import CheckFailed, Unreachable, UsageError

C = TypeVar("C", bound="psycopg.Connection[Any]")
Connection = psycopg.Connection[tuple[Any, ...]]

CONNECT_TIMEOUT_S = 6

# Advisory locks are taken in their two-integer form, a class each, so that they cannot meet the application's
# own. The SQL functions repeat APPEND, PARKED and REWIND; the others are the relay's.
LOCK_MIGRATE = 0x53540000
LOCK_APPEND = 0x53540001
LOCK_SHARD = 0x53540002
LOCK_MEMBER = 0x53540003
LOCK_PARKED = 0x53540004
LOCK_REWIND = 0x53540016

# A peer that vanished without a word is noticed within about ten seconds.
KEEPALIVES: Mapping[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10000,
}


@overload
def connect(
    url: str, *, application_name: str, autocommit: bool = ..., settings: Mapping[str, str] | None = ...
) -> Connection: ...
@overload
def connect(
    url: str,
    *,
    application_name: str,
    autocommit: bool = ...,
    settings: Mapping[str, str] | None = ...,
    connection_class: type[C],
) -> C: ...
def connect(
    url: str,
    *,
    application_name: str,
    autocommit: bool = False,
    settings: Mapping[str, str] | None = None,
    connection_class: type[psycopg.Connection[Any]] = psycopg.Connection,
) -> psycopg.Connection[Any]:
    """Open a connection with its session `settings` (as SET takes them; sent one round trip in all).

    Raises Unreachable within ten seconds, naming host, port and database, never user or password; UsageError where
    the URL is no connection string.
    """
    try:
        connection = connection_class.connect(
            url,
            autocommit=True,
            application_name=application_name,
            connect_timeout=CONNECT_TIMEOUT_S,
            **KEEPALIVES,
        )
    except psycopg.ProgrammingError:  # its text may hold the password
        raise UsageError(
            "DATABASE_URL is no valid connection string; expected postgresql://USER@HOST:PORT/DATABASE"
        ) from None
    except psycopg.Error as error:
        raise unreachable(url, error) from None
    try:
        with connection.pipeline():
            # What a lock protects is read once it is held: each statement must see what is committed by then.
            for name, value in {
                "default_transaction_isolation": "read committed",
                **(settings or {}),
            }.items():
                connection.execute("select set_config(%s, %s, false)", [name, value])
        connection.autocommit = autocommit
    except psycopg.OperationalError as error:  # lost as soon as it was made: the server is being restarted
        connection.close()
        raise unreachable(url, error) from None
    return connection


def unreachable(url: str, error: Exception) -> Unreachable:
    """What may be shown of a failed connection: the server's reason without what the user typed as a secret."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return Unreachable(
        f"PostgreSQL at {shown_address(url)} cannot be used: {_without_password(url, reason)}",
        # A server that says no is there.
        hint="check DATABASE_URL" if _is_refusal(reason) else "stream stack status   (or check DATABASE_URL)",
    )


def _is_refusal(reason: str) -> bool:
    said = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist")
    return "FATAL" in reason and any(text in reason for text in said)


def _without_password(url: str, text: str) -> str:
    password = psycopg.conninfo.conninfo_to_dict(url).get("password")
    return text.replace(str(password), "***") if password else text


@cache
def query(name: str) -> LiteralString:
    """The SQL of `sql/queries/<name>.sql`."""
    text = files("stream").joinpath("sql", "queries", f"{name}.sql").read_text(encoding="utf-8")
    return text


def migrations() -> Iterator[tuple[int, str, LiteralString]]:
    """(number, name, SQL) of each migration, in order."""
    folder = files("stream").joinpath("sql", "migrations")
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            number, _, name = entry.name.removesuffix(".sql").partition("_")
            yield int(number), name, entry.read_text(encoding="utf-8")


def applied(connection: Connection) -> set[int]:
    """Numbers of the migrations this database has."""
    known = connection.execute("select to_regclass('stream.migration')").fetchone()
    if known is None or known[0] is None:
        return set()
    return {number for (number,) in connection.execute("select number from stream.migration")}


def pending(connection: Connection) -> list[tuple[int, str, LiteralString]]:
    """Migrations this database does not have yet, in order."""
    have = applied(connection)
    return [migration for migration in migrations() if migration[0] not in have]


def migrate(connection: Connection) -> list[str]:
    """Apply what is pending, all in one transaction, one process at a time; returns the names applied."""
    with connection.transaction():
        lock_migration(connection)
        connection.execute("create schema if not exists stream")
        connection.execute(query("migration_table"))
        names = []
        for number, name, sql in pending(connection):
            connection.execute(sql)
            connection.execute("insert into stream.migration (number, name) values (%s, %s)", [number, name])
            names.append(f"{number:04d}_{name}")
    return names


def lock_migration(connection: Connection) -> None:
    """One process at a time migrates; held until the transaction ends."""
    connection.execute("select pg_advisory_xact_lock(%s, 0)", [LOCK_MIGRATE])


def require_migrated(connection: Connection) -> None:
    """Raise CheckFailed where migrations are pending."""
    missing = pending(connection)
    if missing:
        names = ", ".join(f"{number:04d}_{name}" for number, name, _ in missing)
        raise CheckFailed(f"the database lacks migrations: {names}", hint="stream migrate")


# SQLSTATE classes and codes that say nothing about the statement that met them: the same work again can succeed.
_INFRASTRUCTURE_CLASSES = ("08", "53", "58")
_INFRASTRUCTURE_CODES = frozenset(
    {"40001", "40P01", "55P03", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "25006"}
)
_LIMIT_OF_THE_CALLER = "53400"  # configuration_limit_exceeded, as stream.append raises it: no later try helps


def is_infrastructure(error: psycopg.Error) -> bool:
    """Whether the error is the database's condition, not the statement's fault: lost connection, deadlock, full."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError) and not isinstance(error, pg.PipelineAborted)
    if error.sqlstate == _LIMIT_OF_THE_CALLER:
        return False
    return error.sqlstate[:2] in _INFRASTRUCTURE_CLASSES or error.sqlstate in _INFRASTRUCTURE_CODES


def int_array(numbers: Iterable[int]) -> str:
    """An array literal: many times cheaper to make than a list, whose every element psycopg looks at."""
    return "{" + ",".join(map(str, numbers)) + "}"


def text_array(texts: Iterable[str]) -> str:
    """As `int_array`, of texts."""
    return "{" + ",".join([_quoted(text) for text in texts]) + "}"


def bytea_array(values: Iterable[bytes]) -> str:
    """As `int_array`, of bytes."""
    return text_array(f"\\x{value.hex()}" for value in values)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
