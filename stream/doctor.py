"""The doctor: looks at project, broker and database side by side, and has the checks say what is wrong.

Whatever does not answer is a failed check, and the others run all the same; after nine seconds nothing is waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from typing import Literal, TypeVar

import psycopg
from psycopg import errors as pg

from stream import app, checks, checkup, database
from stream.app import Migration
from stream.checkup import Server, Tables
from stream.config import Config, not_given, shown_address
from stream.discovery import discover
from stream.errors import CheckFailed, StreamError, Unreachable
from stream.findings import Declared, Facts, Finding, Problem, SchemaFiles
from stream.groups import ConsumerGroup
from stream.kafka.survey import survey
from stream.project import Project
from stream.schemas import checking

T = TypeVar("T")

PATIENCE_S = 9.0
STATEMENT_TIMEOUT = "5s"


def examine(config: Config, project: Project) -> list[Finding]:
    """Every finding, in the order of the checks' table. Changes nothing; raises nothing."""
    schemas = _schema_files(project)
    declared = _declared(project)
    groups = {} if isinstance(declared, Problem) else dict(declared.groups)
    topics = () if isinstance(declared, Problem) else tuple(declared.topics)
    deadline = time.monotonic() + PATIENCE_S
    asked_broker = _begin(lambda: survey(_given(config, "broker"), topics, tuple(groups)))
    asked_database = _begin(lambda: _database(_given(config, "database"), project, groups, declared))
    found = _wait(asked_database, deadline, "database", f"PostgreSQL at {shown_address(config.database_url)}")
    server, migration, tables = (found, found, found) if isinstance(found, Problem) else found
    cluster = _wait(asked_broker, deadline, "broker", f"Kafka at {config.bootstrap_servers}")
    return checks.run(Facts(schemas, declared, cluster, server, migration, tables, config.prefix))


def _given(config: Config, server: Literal["broker", "database"]) -> Config:
    """Raises Unreachable where it has no address of it."""
    if not (config.bootstrap_servers if server == "broker" else config.database_url):
        raise Unreachable(not_given(server), hint="stream stack up")
    return config


def _schema_files(project: Project) -> SchemaFiles | Problem:
    try:
        catalog = project.schemas
        problems, unlocked = checking.check(project.root / "schemas", catalog)
        return SchemaFiles(len(catalog.versions()), problems, [schema.path.name for schema in unlocked])
    except StreamError as error:
        return _problem("schemas", error, "stream schema check")


def _declared(project: Project) -> Declared | Problem:
    try:
        groups = discover(project)
        return Declared({topic.name: topic for topic in app.declared_topics(project, groups)}, groups)
    except StreamError as error:
        return _problem("consumers", error, "stream migrate --check")


def _database(
    config: Config, project: Project, groups: Mapping[str, ConsumerGroup], declared: Declared | Problem
) -> tuple[Server, Migration | Problem, Tables | Problem]:
    with database.connect(
        config.database_url,
        application_name="stream-doctor",
        autocommit=True,
        settings={"statement_timeout": STATEMENT_TIMEOUT, "default_transaction_read_only": "on"},
    ) as connection:
        server = checkup.server(connection)
        try:
            database.require_migrated(connection)
            migration: Migration | Problem = Migration()
            if not isinstance(declared, Problem):
                migration = app.unmigrated(connection, project, dict(groups))
            return server, migration, checkup.tables(connection, groups)
        except CheckFailed as error:
            problem = _problem("migrations", error, "stream migrate")
        except pg.InsufficientPrivilege:
            problem = Problem("rights", "", None)
    return server, problem, problem


def _problem(check: str, error: StreamError, fix: str) -> Problem:
    """In one line: of a traceback, what it begins and ends with."""
    first, *others = error.message.splitlines()
    return Problem(check, f"{first} {others[-1]}" if others else first, error.hint or fix)


# -- side by side -----------------------------------------------------------------------------------------------------


def _begin(ask: Callable[[], T]) -> Future[T]:
    """Ask in a thread of its own, which is left behind where it hangs."""
    future: Future[T] = Future()

    def answer() -> None:
        try:
            future.set_result(ask())
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            future.set_exception(error)

    threading.Thread(target=answer, daemon=True).start()
    return future


def _wait(future: Future[T], deadline: float, check: str, name: str) -> T | Problem:
    try:
        return future.result(max(0.0, deadline - time.monotonic()))
    except NotInTime:
        return Problem(check, f"{name} did not answer within {PATIENCE_S:.0f} s", "stream stack status")
    except StreamError as error:
        return _problem(check, error, "stream stack status")
    except psycopg.Error as error:
        return Problem(check, f"{name}: {' '.join(str(error).split())}", "stream stack status")
