"""Dead letters for tests: a handler that fails as told, and its group until nothing of it is due any more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from stream import Context, Event, PermanentError
from stream.config import RetrySettings
from stream.project import Project
from tests.support.executions import INSERT
from tests.support.retries import RetryingWorker, make_due, retry_records
from tests.support.small import record

CALM = RetrySettings(halt_failures=1_000_000, halt_window=1_000_000)  # a test's letters are no bad deploy


class Troubled:
    """A group whose handler fails for the numbers in `trouble`, with the error that stands there."""

    def __init__(self, project: Project, url: str, **options: Any) -> None:
        self.trouble: dict[int, BaseException] = {}
        self.tried: list[tuple[int, int]] = []  # (number, attempt)
        self._project = project
        self.worker = RetryingWorker(project, url, self._handle, settings=CALM, **options)

    def die(self, *events: tuple[str | None, int], error: BaseException | None = None) -> None:
        """(key, n): each fails for good."""
        for _, n in events:
            self.trouble[n] = error or PermanentError(f"no lines in {n}")
        self.run(*events)

    def run(self, *events: tuple[str | None, int]) -> list[str]:
        """(key, n) events in order, one after the other; what became of each."""
        return [kind for key, n in events for kind in self.worker.kinds(record(self._project, key, n))]

    def heal(self, numbers: Iterable[int] = ()) -> None:
        """The cause is gone: of these, or of all."""
        for n in list(numbers) or list(self.trouble):
            self.trouble.pop(n, None)

    def go_on(self, conn: psycopg.Connection[Any]) -> list[str]:
        """Wake what is parked, due or not, as the relay and the retry topic do, until nothing is left to be tried;
        what became of each."""
        kinds: list[str] = []
        while True:
            make_due(conn)
            records = retry_records(conn)
            if not records:
                return kinds
            kinds += self.worker.wake(*records)

    def _handle(self, event: Event, ctx: Context) -> None:
        n = event.data["n"]
        self.tried.append((n, ctx.attempt))
        ctx.db.execute(INSERT, [event.id, event.key, n])
        if n in self.trouble:
            raise self.trouble[n]


def rows(conn: psycopg.Connection[Any], sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """What the query finds now; no transaction is left open."""
    found = conn.execute(sql.encode(), parameters).fetchall()
    conn.commit()
    return found


def statuses(conn: psycopg.Connection[Any]) -> list[tuple[int, str]]:
    return rows(conn, "select id, status from stream.dead_letter order by id")


def halt(conn: psycopg.Connection[Any], group: str) -> None:
    """The group runs nothing any more."""
    conn.execute(
        "insert into stream.group_state (consumer_group, start_policy, halted_at, halted_reason)"
        " values (%s, 'beginning', now(), 'ten in a row')"
        " on conflict (consumer_group) do update"
        " set halted_at = excluded.halted_at, halted_reason = excluded.halted_reason",
        [group],
    )
    conn.commit()
