"""The outbox of a test's project and a relay for it, and handlers with their effects, in the test's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from stream.project import Project
from stream.relay import Relay
from tests.support.executions import Worker
from tests.support.retries import RetryingWorker
from tests.support.small import make_project
from tests.support.truth import Truth


@pytest.fixture
def truth(config: Config, project: Project) -> Truth:
    return Truth(config, project)


@pytest.fixture
def relay(config: Config, truth: Truth) -> Iterator[Relay]:
    relay = Relay(config, truth.project)
    yield relay
    relay.drain(5)


@pytest.fixture
def small(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture
def effects(conn: psycopg.Connection[Any]) -> Callable[[], list[tuple[str, int]]]:
    """The effect log, without a unique key: (key, n) in the order they were written."""
    conn.execute(
        "create table effect (seq bigint generated always as identity, event_id uuid, key text, n int not null)"
    )
    conn.execute("alter table effect add constraint small check (n < 1000)")
    conn.commit()

    def read() -> list[tuple[str, int]]:
        rows = conn.execute("select key, n from effect order by seq").fetchall()
        conn.commit()
        return rows

    return read


@pytest.fixture
def worker(small: Project, database_url: str) -> Iterator[Callable[..., Worker]]:
    made: list[Worker] = []

    def make(handler: Any, **options: Any) -> Worker:
        made.append(Worker(small, database_url, handler, **options))
        return made[-1]

    yield make
    for each in made:
        each.execution.close()


@pytest.fixture
def retrying(
    small: Project, database_url: str, conn: psycopg.Connection[Any]
) -> Iterator[Callable[..., RetryingWorker]]:
    """Makes workers of group testers that park what fails."""
    conn.execute(
        "insert into stream.group_state (consumer_group, start_policy) values ('testers', 'beginning')"
    )
    conn.commit()
    made: list[RetryingWorker] = []

    def make(handler: Any, **options: Any) -> RetryingWorker:
        made.append(RetryingWorker(small, database_url, handler, **options))
        return made[-1]

    yield make
    for each in made:
        each.execution.close()
