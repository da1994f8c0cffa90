"""ctx.db: one cursor for many statements, and never for a result that somebody still wants."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import dict_row

from stream.connection import HandlerConnection


@pytest.fixture(params=["one by one", "together"])
def db(request: pytest.FixtureRequest, database_url: str) -> Iterator[HandlerConnection]:
    with HandlerConnection.connect(database_url, autocommit=True) as connection:
        if request.param == "together":
            with connection.pipeline():
                yield connection
        else:
            yield connection


def test_a_result_that_is_held_is_not_overwritten(db: HandlerConnection) -> None:
    held = [db.execute("select %s::int", [n]) for n in range(5)]
    assert [rows.fetchone() for rows in held] == [(n,) for n in range(5)]


def test_rows_can_be_walked_while_other_statements_run(db: HandlerConnection) -> None:
    seen = []
    for (n,) in db.execute("select generate_series(1, 3)"):
        (double,) = db.execute("select %s * 2", [n]).fetchone()
        seen.append(double)
    assert seen == [2, 4, 6]


def test_a_method_taken_from_a_result_keeps_it(db: HandlerConnection) -> None:
    fetch, scroll = db.execute("select 1").fetchall, db.execute("select 2").nextset
    db.execute("select 3")
    assert fetch() == [(1,)]
    assert scroll() is None


def test_a_result_used_as_a_cursor_is_one_of_its_own(db: HandlerConnection) -> None:
    with db.execute("select 1") as cursor:
        db.execute("select 2")
        assert cursor.fetchone() == (1,)
    first = db.execute("select generate_series(7, 8)")
    assert next(first) == (7,)
    db.execute("select 9")
    assert next(first) == (8,)


def test_a_new_row_factory_and_new_adapters_are_respected(db: HandlerConnection) -> None:
    db.execute("select 1")
    db.row_factory = dict_row
    assert db.execute("select 1 as n").fetchone() == {"n": 1}
    db.adapters.register_loader("int4", psycopg.types.string.TextLoader)
    assert db.execute("select 1 as n").fetchone() == {"n": "1"}


def test_statements_through_cursors_and_savepoints_are_counted(db: HandlerConnection) -> None:
    for act in (
        lambda: db.cursor().execute("select 1"),
        lambda: (
            psycopg.ClientCursor(db).execute("select 1") if db._pipeline is None else db.execute("select 1")
        ),
        lambda: db.transaction().__enter__(),
    ):
        before = db.sent
        act()
        assert db.sent > before
