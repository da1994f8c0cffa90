"""The door in: what is written, what waits, what is refused, from Python and from plain SQL."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

from stream import Outbox
from stream.errors import InvalidEvent, UnknownEventType, UsageError
from stream.events import named_event_id
from stream.project import Project
from tests.support.orders import an_order
from tests.support.waiting import until

Conn = psycopg.Connection[Any]


@pytest.fixture
def outbox(project: Project) -> Outbox:
    return Outbox(project)


@pytest.fixture
def declared(conn: Conn, project: Project) -> Conn:
    """A connection to a database that knows the project's event types."""
    from stream.app import _write_event_types

    _write_event_types(conn, project)
    conn.commit()
    return conn


def test_an_appended_event_is_one_row_with_the_bytes_the_topic_will_have(
    conn: Conn, outbox: Outbox, project: Project
) -> None:
    id = outbox.append(conn, "OrderPlaced", key="536365", data=an_order(), headers={"traceparent": "00-abc"})
    row = conn.execute(
        "select topic, key, event_id, type, payload, data, header_names, header_values from stream.outbox"
    )
    topic, key, event_id, type, payload, data, names, values = row.fetchone() or ()
    assert (topic, key, event_id, type, data) == ("orders", b"536365", id, "OrderPlaced", None)
    assert (names, values) == (["traceparent"], [b"00-abc"])
    name, decoded = project.codec.decode(payload)
    assert name == "OrderPlaced"
    assert decoded["lines"][0]["sku"] == an_order()["lines"][0]["sku"]


def test_the_same_own_id_is_the_same_event_from_python_and_from_sql(declared: Conn, outbox: Outbox) -> None:
    from_python = outbox.append(declared, "OrderPlaced", key="1", data=an_order(), id="checkout-7")
    [(from_sql,)] = declared.execute(
        "select stream.append('OrderPlaced', '1', %s, id => 'checkout-7')",
        [json.dumps(an_order(), default=str)],
    )
    assert from_python == from_sql == named_event_id("OrderPlaced", "checkout-7")
    assert from_python.version == 8
    [(other,)] = declared.execute("select stream.event_id('OrderPaid', 'checkout-7')")
    assert other != from_python


def test_ids_made_by_sql_are_time_ordered_uuids(conn: Conn) -> None:
    before = int(datetime.now(UTC).timestamp() * 1000)
    [(made,)] = conn.execute("select stream.uuidv7()")
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert abs((made.int >> 80) - before) < 5000


def a_line(**changes: Any) -> dict[str, Any]:
    """An order whose one line is changed."""
    order = an_order()
    order["lines"][0].update(changes)
    return order


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"type": "OrderPlacedd"}, "type"),
        ({"key": ""}, "key"),
        ({"key": "k" * 10_000}, "key"),
        ({"key": "a\0b"}, "key"),
        ({"key": "\ud800"}, "key"),
        ({"data": {}}, "customer_id"),
        ({"headers": {"ce_id": "x"}}, "headers.'ce_id'"),
        ({"headers": {"n": 1}}, "headers.'n'"),
        ({"time": datetime(2026, 1, 1)}, "time"),
        ({"delay": -1}, "delay"),
        ({"debounce": "x"}, "debounce"),
        ({"debounce": "a\0b", "delay": 1}, "debounce"),
        ({"debounce": "\ud800", "delay": 1}, "debounce"),
        ({"max_wait": 5}, "max_wait"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": timedelta.max}, "delay"),
        ({"id": "\ud800"}, "id"),
        ({"time": datetime(1, 1, 1, tzinfo=UTC)}, "time"),
        ({"time": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, "time"),
        ({"data": a_line(unit_price=float("nan"))}, "lines[0].unit_price"),
        ({"data": a_line(unit_price=Decimal("1e5000"))}, "lines[0].unit_price"),
        ({"data": a_line(quantity=10**5000)}, "lines[0].quantity"),
        ({"data": a_line(description="\ud800")}, "lines[0].description"),
        ({"data": a_line(description="a\0b")}, "lines[0].description"),
        ({"data": a_line(description="x" * 900_000)}, "data: expected at most 900000 bytes"),
        ({"headers": {"h": "x" * 900_000}}, "with its headers"),
    ],
)
def test_a_wrong_event_is_refused_before_the_database_sees_it(
    conn: Conn, outbox: Outbox, arguments: dict[str, Any], field: str
) -> None:
    event = {"type": "OrderPlaced", "key": "1", "data": an_order(), **arguments}
    conn.execute("create temporary table mine as select 1")
    with pytest.raises((InvalidEvent, UnknownEventType)) as refused:
        outbox.append(conn, event.pop("type"), **event)
    assert field in str(refused.value) or field == "type"
    assert conn.execute("select count(*) from mine").fetchone() == (1,), "the caller's transaction is usable"
    assert conn.execute("select count(*) from stream.outbox").fetchone() == (0,)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("stream.append('OrderPlacedd', '1', '{}')", "unknown event type"),
        ("stream.append('OrderPlaced', '', %(data)s)", "key: expected text of 1 to 1024 bytes"),
        (
            "stream.append('OrderPlaced', null, %(data)s)",
            "key: expected text of 1 to 1024 bytes, got nothing",
        ),
        ("stream.append('OrderPlaced', repeat('k', 10000), %(data)s)", "got 10000 bytes"),
        ("stream.append('OrderPlaced', '1', '[]')", "data: expected an object, got array"),
        ("stream.append('OrderPlaced', '1', null)", "data: expected an object, got null"),
        (
            "stream.append('OrderPlaced', '1', %(data)s::jsonb - 'lines')",
            "OrderPlaced.lines: expected array, got nothing",
        ),
        (
            "stream.append('OrderPlaced', '1', %(data)s::jsonb || '{\"lines\": 7}')",
            "lines: expected array, got number",
        ),
        ("stream.append('OrderPlaced', '1', %(data)s, headers => '{\"ce_id\": \"x\"}')", "headers.ce_id"),
        (
            "stream.append('OrderPlaced', '1', %(data)s, delay => '-1 s')",
            "delay: expected no time in the past",
        ),
        (
            "stream.append('OrderPlaced', '1', %(data)s, \"time\" => 'infinity')",
            "time: expected a time in the years",
        ),
        (
            "stream.append('OrderPlaced', '1', %(data)s, \"time\" => '0044-03-15 BC')",
            "time: expected a time in the years",
        ),
        (
            "stream.append('OrderPlaced', '1', %(data)s, delay => '101 years')",
            "delay: expected at most 100 years",
        ),
        (
            "stream.append('OrderPlaced', '1', %(data)s, delay => '1 s', debounce => 'x', max_wait => '-1 s')",
            "max_wait: expected no negative",
        ),
        (
            "stream.append('OrderPlaced', '1', %(data)s, headers => '{\"h\": null}')",
            "headers.h: expected text",
        ),
        (
            "stream.append('OrderPlaced', '1', %(data)s, headers => jsonb_build_object('h', repeat('x', 900000)))",
            "at most 900000 bytes with its headers",
        ),
        ("stream.append('OrderPlaced', '1', %(data)s, debounce => 'x')", "beside a delay"),
        ("stream.append_many('{}')", "expected a JSON array"),
        ('stream.append_many(\'[{"type": "OrderPlaced", "kye": "1"}]\')', 'unknown argument "kye"'),
    ],
)
def test_the_same_mistakes_are_refused_from_plain_sql(declared: Conn, call: str, says: str) -> None:
    data = json.dumps(an_order(), default=str)
    with (
        pytest.raises(pg.InvalidParameterValue, match=says.replace("(", r"\(").replace("'", "'")),
        declared.transaction(),
    ):
        declared.execute("select " + call, {"data": data})  # type: ignore[arg-type]  # not a literal
    assert declared.execute("select count(*) from stream.outbox").fetchone() == (0,)


def test_a_second_transaction_of_a_key_waits_for_the_first_and_takes_a_later_id(
    conn: Conn, outbox: Outbox, database_url: str
) -> None:
    outbox.append(conn, "OrderPlaced", key="1", data=an_order(), id="first")
    second_done = threading.Event()

    def second() -> None:
        with psycopg.connect(database_url, application_name="second") as other:
            outbox.append(other, "OrderPlaced", key="1", data=an_order(), id="second")
        second_done.set()

    thread = threading.Thread(target=second)
    thread.start()
    with psycopg.connect(database_url) as watch:
        until(lambda: waits(watch, "second"), what="the second append waits")
        outbox.append(watch, "OrderPlaced", key="another key", data=an_order())  # does not wait
    assert not second_done.is_set()
    conn.commit()
    thread.join(20)
    assert second_done.is_set()
    ids = conn.execute("select event_id from stream.outbox where key = '1' order by id").fetchall()
    assert ids == [(named_event_id("OrderPlaced", "first"),), (named_event_id("OrderPlaced", "second"),)]


def waits(conn: Conn, application_name: str) -> bool:
    conn.rollback()
    [(waiting,)] = conn.execute(
        "select count(*) from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'",
        [application_name],
    )
    return bool(waiting)


def test_many_events_of_the_same_keys_in_opposite_orders_do_not_deadlock(
    outbox: Outbox, database_url: str
) -> None:
    failures: list[BaseException] = []
    barrier = threading.Barrier(2)

    def append(keys: list[str]) -> None:
        try:
            with psycopg.connect(database_url) as own:
                for _ in range(10):
                    barrier.wait(20)
                    outbox.append_many(
                        own, [{"type": "OrderPlaced", "key": key, "data": an_order()} for key in keys]
                    )
                    own.commit()
        except BaseException as failure:  # noqa: BLE001  # handed to the main thread
            failures.append(failure)

    keys = [str(n) for n in range(50)]
    threads = [threading.Thread(target=append, args=(order,)) for order in (keys, keys[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


def test_too_many_keys_in_one_transaction_are_refused_naming_the_limit_before_a_row_is_written(
    conn: Conn, outbox: Outbox
) -> None:
    [(limit,)] = conn.execute(
        "select current_setting('max_locks_per_transaction')::int"
        " * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) / 4"
    )
    data = {"sku": "1", "on_hand": 0, "reorder_level": 1}
    prepared = [outbox.prepare("StockLow", key=str(n), data=data) for n in range(1000)]
    with pytest.raises(pg.ConfigurationLimitExceeded, match=str(limit)), conn.transaction():
        for start in range(0, limit + 1001, 1000):
            outbox.write(
                conn, [*(outbox.prepare("StockLow", key=f"{start}-{n}", data=data) for n in range(1000))]
            )
    assert conn.execute("select count(*) from stream.outbox").fetchone() == (0,)
    for _ in range(3 * limit // 1000):
        outbox.write(conn, prepared)  # the same keys again and again: a thousand locks, not more


def test_a_delayed_event_waits_in_scheduled_and_a_debounced_one_replaces_the_one_before(
    conn: Conn, outbox: Outbox
) -> None:
    later = timedelta(minutes=5)
    data = {"sku": "85123A", "requested_at": datetime.now(UTC)}
    outbox.append(conn, "OrderPlaced", key="1", data=an_order(), delay=later)
    for id in ("a", "b", "c"):
        outbox.append(
            conn,
            "StockCheckRequested",
            key="85123A",
            data=data,
            id=id,
            delay=3600,
            debounce="check",
            max_wait=600,
        )
    assert conn.execute("select count(*) from stream.outbox").fetchone() == (0,)
    rows = conn.execute(
        "select type, event_id, due_at - now(), debounce_key from stream.scheduled order by id"
    ).fetchall()
    assert [row[0] for row in rows] == ["OrderPlaced", "StockCheckRequested"]
    assert rows[1][1] == named_event_id("StockCheckRequested", "c")
    assert timedelta(minutes=4) < rows[0][2] <= later + timedelta(seconds=5)
    assert rows[1][2] <= timedelta(seconds=605), "due by its maximum wait, not by its delay"


def test_two_debounced_events_in_one_call_are_one(conn: Conn, outbox: Outbox) -> None:
    data = {"sku": "1", "requested_at": datetime.now(UTC)}
    event = {"type": "StockCheckRequested", "key": "1", "data": data, "delay": 1, "debounce": "check"}
    outbox.append_many(conn, [{**event, "id": "a"}, {**event, "id": "b"}])
    assert conn.execute("select event_id from stream.scheduled").fetchall() == [
        (named_event_id("StockCheckRequested", "b"),)
    ]


def test_an_application_needs_no_right_to_the_tables(
    declared: Conn, outbox: Outbox, new_database: Callable[[], str]
) -> None:
    role = "shop_" + uuid.uuid4().hex[:8]
    declared.execute(f"create role {role}")  # type: ignore[arg-type]  # a name made here
    declared.execute(f"grant usage on schema stream to {role}")  # type: ignore[arg-type]
    try:
        declared.execute(f"grant execute on function stream.append_encoded to {role}")  # type: ignore[arg-type]
        declared.execute(f"set local role {role}")  # type: ignore[arg-type]
        outbox.append(declared, "OrderPlaced", key="1", data=an_order())
        declared.execute(
            "select stream.append('OrderPlaced', '2', %s)", [json.dumps(an_order(), default=str)]
        )
        with pytest.raises(pg.InsufficientPrivilege), declared.transaction():
            declared.execute("delete from stream.outbox")
    finally:
        declared.rollback()


def test_plain_sql_needs_no_more_than_the_use_of_the_schema_and_bytes_as_they_are_need_a_grant(
    declared: Conn, outbox: Outbox
) -> None:
    role = "shop_" + uuid.uuid4().hex[:8]
    declared.execute(f"create role {role}")  # type: ignore[arg-type]
    declared.execute(f"grant usage on schema stream to {role}")  # type: ignore[arg-type]
    declared.execute(f"set local role {role}")  # type: ignore[arg-type]
    declared.execute("select stream.append('OrderPlaced', '2', %s)", [json.dumps(an_order(), default=str)])
    with pytest.raises(pg.InsufficientPrivilege), declared.transaction():
        outbox.append(declared, "OrderPlaced", key="1", data=an_order())
    declared.rollback()


def test_an_append_in_no_transaction_is_refused(database_url: str, outbox: Outbox) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        with pytest.raises(UsageError, match="autocommit"):
            outbox.append(conn, "OrderPlaced", key="1", data=an_order())
        with conn.transaction():
            outbox.append(conn, "OrderPlaced", key="1", data=an_order())
        assert conn.execute("select count(*) from stream.outbox").fetchone() == (1,)
