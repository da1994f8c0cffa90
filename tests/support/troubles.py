"""A small shop in which something of all kinds has happened that a command can be asked about."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from stream.config import Config
from stream.project import Project
from stream.relay import Relay
from tests.support.effects import effect_project
from tests.support.processes import run
from tests.support.waiting import until

GROUP, KEY_DONE, KEY_DEAD, KEY_LATE, KEY_ODD, KEY_NEW = "testers", "done", "dead", "late", "odd", "new"

FAILING = """
    if event.key == "dead":
        raise PermanentError("it has no lines")
    if event.key == "late":
        raise TransientError("the provider is away")
"""

OLD = """
insert into stream.ledger (consumer_group, event_id, attempts, worker, at)
values (%s, gen_random_uuid(), 1, 'w1', now() - interval '500 days')
"""


class Troubles:
    """Of group testers, `done` is applied, `dead` is held by letter 1 with an event behind it, `late` waits for its
    next try. `odd` cannot be published, and `new` is not published yet. The ledger remembers an event of 500 days ago.
    No relay and no process of the group is there.
    """

    def __init__(self, config: Config, root: Path, environment: dict[str, str]) -> None:
        self.project = effect_project(root, before=FAILING.strip(), on_dead="hold")
        self.config = replace(config, project=self.project.root)
        for words, code in ((["schema", "check"], 0), (["migrate"], 0)):
            command = run(*words, env=environment, cwd=self.project.root)
            assert command.wait() == code, command.stderr
        self._append((KEY_DONE, 1), (KEY_DEAD, 1), (KEY_DEAD, 2), (KEY_LATE, 1), (KEY_ODD, 1.5))
        _publish(self.config, self.project)
        command = run("consume", "--group", GROUP, "--exit-at-end", env=environment, cwd=self.project.root)
        assert command.wait() == 6, command.stderr
        self._append((KEY_NEW, 1))
        with psycopg.connect(self.config.database_url) as conn:
            conn.execute(OLD, [GROUP])

    def copy(self) -> Config:
        """The same on a database of its own, which the caller drops."""
        name = f"copy_{uuid.uuid4().hex[:12]}"
        base, _, source = self.config.database_url.rpartition("/")
        with psycopg.connect(f"{base}/postgres", autocommit=True) as conn:
            names = sql.Identifier(name), sql.Identifier(source)
            conn.execute(sql.SQL("create database {} template {}").format(*names))
        return replace(self.config, database_url=f"{base}/{name}")

    def _append(self, *events: tuple[str, float]) -> None:
        with psycopg.connect(self.config.database_url) as conn:
            for key, n in events:
                conn.execute(
                    "select stream.append('Happened', %s, jsonb_build_object('n', %s::numeric))", [key, n]
                )


def drop(config: Config) -> None:
    base, _, name = config.database_url.rpartition("/")
    with psycopg.connect(f"{base}/postgres", autocommit=True) as conn:
        conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _publish(config: Config, project: Project) -> None:
    """All that can be published."""
    relay = Relay(config, project)
    try:
        with psycopg.connect(config.database_url, autocommit=True) as conn:
            until(lambda: relay.run_once() is not None and _count(conn, "outbox") == 0)
    finally:
        relay.drain(5)


def _count(conn: psycopg.Connection[Any], table: str) -> int:
    [(count,)] = conn.execute(sql.SQL("select count(*) from stream.{}").format(sql.Identifier(table)))
    return int(count)
