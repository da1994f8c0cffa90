"""HandlerConnection: `ctx.db`, a psycopg connection that leaves commit and rollback to the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from sys import getrefcount
from typing import Any, NoReturn, cast

import psycopg
from psycopg import pq
from psycopg.abc import PQGen
from psycopg.adapt import AdaptersMap

from stream.errors import GroupError

Row = tuple[Any, ...]

GATHER = 32  # statements: the server works on some while handlers make the next


class HandlerConnection(psycopg.Connection[Row]):
    """Counts what is sent through it; while a handler runs, it refuses to end the transaction.

    Nested `with ctx.db.transaction():` blocks are savepoints and are allowed.
    """

    guarded = False  # while handlers run
    sent = 0  # statements, savepoints and waits so far, whoever asked for them
    open_pipeline: psycopg.Pipeline | None = None
    # A statement could not be sent, of which psycopg expects an answer: those that follow go to the wrong statements.
    out_of_step = False
    _most_s = 0  # see limit_transactions
    _rows: Rows | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursor_factory = HandlerCursor

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        outer = self.open_pipeline
        if self._pipeline is None:
            self._pipeline = GatheringPipeline(self)
            self.out_of_step = False
        try:
            with super().pipeline() as self.open_pipeline:
                yield self.open_pipeline
        finally:
            self.open_pipeline = outer

    def wait(self, gen: PQGen[Any], interval: float = 0.1, timeout: float | None = None) -> Any:
        self.sent += 1  # everything that talks to the server passes here
        return psycopg.Connection.wait(self, gen, interval, timeout)

    def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = None, binary: bool = False
    ) -> psycopg.Cursor[Row]:
        """As psycopg's, but through one cursor for as long as nobody holds on to what it returned.

        A fresh cursor for each statement of a batch is half of the statement's cost: its parameters are prepared
        from nothing every time.
        """
        if binary or not isinstance(query, str):
            return super().execute(query, params, prepare=prepare, binary=binary)
        rows = self._rows
        if (
            rows is None
            or rows.in_use
            or getrefcount(rows) > _REFERENCES_OF_OURS
            or rows.factory is not self.row_factory
        ):
            rows = Rows(self.cursor(), self.row_factory)
            self._rows = rows
        rows.cursor.execute(query, params, prepare=prepare)
        return cast("psycopg.Cursor[Row]", rows)

    @property
    def adapters(self) -> AdaptersMap:
        self._rows = None  # a cursor copies them when it is made: whoever looks at them may change them
        return super().adapters

    def touch(self) -> None:
        """A statement for its own sake: the session is not idle. No sign of the handler's work; an error is met by
        the next statement that is."""
        sent = self.sent
        with suppress(psycopg.Error):
            if self._most_s:
                self.limit_transactions(0)  # its clock starts anew only where it was stopped
            self.limit_transactions(self._most_s)
        self.sent = sent

    def limit_transactions(self, seconds: int) -> None:
        """How long a transaction may last from now, 0 for no limit; PostgreSQL 17 and newer."""
        self._most_s = seconds or self._most_s
        if self.info.server_version >= 170000:
            self.execute("select set_config('transaction_timeout', %s, false)", [f"{seconds}s"])
        else:
            self.execute("select 1")

    def commit(self) -> None:
        self._check("commit()")
        super().commit()

    def rollback(self) -> None:
        self._check("rollback()")
        super().rollback()

    def close(self) -> None:
        self._check("close()")
        super().close()

    def set_autocommit(self, value: bool) -> None:
        self._check("autocommit")
        super().set_autocommit(value)

    def _check(self, what: str) -> None:
        if self.guarded:
            _refuse(what)

    @property
    def failed(self) -> bool:
        """Whether the transaction cannot be committed any more: a statement failed, or the connection is lost."""
        return (
            self.broken
            or self.closed
            or self.pgconn.pipeline_status == pq.PipelineStatus.ABORTED
            or self.pgconn.transaction_status in (pq.TransactionStatus.INERROR, pq.TransactionStatus.UNKNOWN)
        )

    @property
    def left_open(self) -> bool:
        """Whether a statement was begun and not ended: a COPY that was never left."""
        return self.open_pipeline is None and self.pgconn.transaction_status == pq.TransactionStatus.ACTIVE


class GatheringPipeline(psycopg.Pipeline):
    """A pipeline that talks to the server for many statements at a time.

    psycopg's own gives each statement a system call to send it and two to look for answers, which is more than the
    statement itself costs; and each lets another thread take the interpreter.
    """

    _gathered = 0

    def _communicate_gen(self) -> PQGen[None]:
        queue = self.command_queue
        try:
            while queue:
                queue.popleft()()  # into libpq's buffer, which sends by itself what is more than 64 kB
        except psycopg.Error:
            cast(HandlerConnection, self._conn).out_of_step = True
            raise
        self._gathered += 1
        if self._gathered >= GATHER:
            self._gathered = 0
            yield from super()._communicate_gen()

    def _enqueue_sync(self) -> None:
        super()._enqueue_sync()
        self._gathered = GATHER  # somebody waits for the answers


class _Held:
    """Counts as `HandlerConnection.execute` does: interpreters differ in what a local name adds."""

    def __init__(self) -> None:
        self._rows: object = object()

    def count(self) -> int:
        rows = self._rows
        if rows is None:
            return 0
        return getrefcount(rows)


# References to a result that nobody but the connection holds.
_REFERENCES_OF_OURS = _Held().count()


class HandlerCursor(psycopg.Cursor[Row]):
    """A cursor whose results are always those of its last statement.

    In a pipeline, psycopg's own has a rowcount of -1 until something is fetched, and that is true; and when the answer
    to an earlier statement comes after the last was sent, it takes that one for the last one's.
    """

    _answered = True  # the last statement, and so all before it

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        self._answered = False
        return super().execute(query, params, **options)

    def executemany(self, query: Any, params_seq: Any, *, returning: bool = False) -> None:
        self._answered = False
        super().executemany(query, params_seq, returning=returning)

    def fetchone(self) -> Row | None:
        self._wait()
        return super().fetchone()

    def fetchmany(self, size: int = 0) -> list[Row]:
        self._wait()
        return super().fetchmany(size)

    def fetchall(self) -> list[Row]:
        self._wait()
        return super().fetchall()

    def __next__(self) -> Row:
        self._wait()
        return super().__next__()

    def scroll(self, value: int, mode: str = "relative") -> None:
        self._wait()
        super().scroll(value, mode)

    def nextset(self) -> bool | None:
        self._wait()
        return super().nextset()

    @property
    def rowcount(self) -> int:
        self._wait()
        return super().rowcount

    @property
    def rownumber(self) -> int | None:
        self._wait()
        return super().rownumber

    @property
    def statusmessage(self) -> str | None:
        self._wait()
        return super().statusmessage

    @property
    def description(self) -> list[psycopg.Column] | None:
        self._wait()
        return super().description

    def _wait(self) -> None:
        if not self._answered:
            self._answered = True
            pipeline = cast(HandlerConnection, self.connection).open_pipeline
            if pipeline is not None:
                pipeline.sync()


class Rows:
    """What `HandlerConnection.execute` returns: a cursor's results, and a sign that somebody still wants them.

    Whoever holds a Rows, one of its methods or its iterator keeps the next statement from using its cursor. For
    all else of a cursor it gives up the cursor for good.
    """

    __slots__ = ("cursor", "factory", "in_use")

    def __init__(self, cursor: psycopg.Cursor[Row], factory: object) -> None:
        self.cursor = cursor
        self.factory = factory
        self.in_use = False

    def fetchone(self) -> Row | None:
        return self.cursor.fetchone()

    def fetchmany(self, size: int = 0) -> list[Row]:
        return self.cursor.fetchmany(size)

    def fetchall(self) -> list[Row]:
        return self.cursor.fetchall()

    def __iter__(self) -> Iterator[Row]:
        yield from self.cursor

    @property
    def rowcount(self) -> int:
        return self.cursor.rowcount

    def __getattr__(self, name: str) -> Any:
        self.in_use = True
        return getattr(self.cursor, name)

    def __next__(self) -> Row:
        self.in_use = True
        return next(self.cursor)

    def __enter__(self) -> psycopg.Cursor[Row]:
        self.in_use = True
        return self.cursor.__enter__()

    def __exit__(self, *details: Any) -> None:
        self.cursor.__exit__(*details)


def _refuse(what: str) -> NoReturn:
    raise GroupError(
        f"ctx.db.{what}: a handler must not end its transaction; the engine commits once the handler returned"
    )
