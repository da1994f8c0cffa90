"""One real Kafka and one real PostgreSQL for the whole run; a database and a name prefix of its own for each test."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from psycopg import sql

from stream import database, stack
from stream.config import Config
from stream.project import Project
from stream.stack import ports, state
from stream.stack.state import State

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def stack_data() -> Iterator[Path]:
    """The folder of this run's own stack."""
    folder = Path(tempfile.mkdtemp(prefix="stream-test-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def servers(stack_data: Path) -> Iterator[stack.Addresses]:
    """Kafka and PostgreSQL, started once a run. A test that kills one of them brings it back with `stack.up`."""
    data = stack_data / ".stream"
    # Not the usual ports: while a test has killed its broker, another test's stack would take them, and this run's
    # clients would find a stranger's broker there.
    state.make_folder(data)
    State(kafka_port=ports.choose(None), postgres_port=ports.choose(None)).save(data)
    yield stack.up(data, progress=lambda line: print(line))
    stack.down(data, delete=True)


@pytest.fixture(scope="session")
def template_database(servers: stack.Addresses) -> str:
    """A migrated database that the tests' own are copied from."""
    name = "stream_template"
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    with psycopg.connect(database_named(servers.database_url, name)) as connection:
        database.migrate(connection)
    return name


@pytest.fixture
def new_database(servers: stack.Addresses, template_database: str) -> Iterator[Callable[[], str]]:
    """Makes databases with the package's migrations; they are gone after the test."""
    names: list[str] = []

    def make() -> str:
        names.append(f"test_{uuid.uuid4().hex[:12]}")
        with psycopg.connect(servers.database_url, autocommit=True) as connection:
            connection.execute(
                sql.SQL("create database {} template {}").format(
                    sql.Identifier(names[-1]), sql.Identifier(template_database)
                )
            )
        return database_named(servers.database_url, names[-1])

    yield make
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        for name in names:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def database_url(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url) as connection:
        yield connection


@pytest.fixture
def config(servers: stack.Addresses, database_url: str) -> Config:
    """The repository's own project on a fresh database, under a fresh prefix on the broker."""
    return Config(
        project=ROOT,
        bootstrap_servers=servers.bootstrap_servers,
        database_url=database_url,
        prefix=f"t{uuid.uuid4().hex[:8]}.",
    )


@pytest.fixture
def project() -> Project:
    return Project(ROOT)


@pytest.fixture
def environment(config: Config) -> dict[str, str]:
    """The environment of a spawned `stream` that works on this test's database and prefix."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("STREAM_")},
        "KAFKA_BOOTSTRAP_SERVERS": config.bootstrap_servers,
        "DATABASE_URL": config.database_url,
        "STREAM_PREFIX": config.prefix,
    }


def database_named(url: str, name: str) -> str:
    """The same server's URL for another database."""
    base, _, query = url.partition("?")
    return base.rsplit("/", 1)[0] + "/" + name + ("?" + query if query else "")


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command that a test runs in this process sets up logging, on the stderr of that moment."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def no_child_left_behind() -> Iterator[None]:
    """A test that leaves a process of its own running has failed."""
    yield
    from tests.support import processes

    with contextlib.suppress(ImportError):
        left = "\n\n".join(processes.end_all())
        assert not left, f"left running: {left}"
