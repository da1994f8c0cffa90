"""The demo's shop: order rows and event are one transaction."""

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from stream import Outbox, database
from stream.demo.makebelieve import orders as made_up
from stream.demo.orders import Line, Order
from stream.demo.shop import Shop
from stream.errors import InvalidEvent
from stream.project import Project

AT = datetime(2010, 12, 1, 8, 26, tzinfo=UTC)
HEART = Line("85123A", "WHITE HANGING HEART", 6, Decimal("2.55"))
POSTAGE = Line("POST", "POSTAGE", 1, Decimal("18"))


def an_order(order_id: str = "536365", kind: Any = "placed", *lines: Line, **changes: Any) -> Order:
    values = {"customer_id": "17850", "country": "United Kingdom", "currency": "GBP", "at": AT, **changes}
    return Order(order_id, kind, lines=lines or (HEART, POSTAGE), **values)


@pytest.fixture
def outbox(project: Project) -> Outbox:
    return Outbox(project)


@pytest.fixture
def shop(database_url: str, outbox: Outbox) -> Iterator[Shop]:
    with database.connect(database_url, application_name="test-shop", autocommit=True) as connection:
        yield Shop(connection, outbox)


def events(shop: Shop, project: Project) -> list[tuple[str, str, dict[str, Any]]]:
    """(key, type, data) of the events in the outbox, in order."""
    rows = shop.conn.execute("select key, payload from stream.outbox order by id").fetchall()
    return [(key.decode(), *project.codec.decode(payload)) for key, payload in rows]


def test_an_order_is_its_rows_and_its_event(shop: Shop, project: Project) -> None:
    shop.place([an_order()])

    line = {"sku": "85123A", "description": "WHITE HANGING HEART", "quantity": 6}
    postage = {"sku": "POST", "description": "POSTAGE", "quantity": 1}
    [(key, type, data)] = events(shop, project)
    assert (key, type) == ("536365", "OrderPlaced")
    assert data == {
        "customer_id": "17850",
        "currency": "GBP",
        "country": "United Kingdom",
        "placed_at": AT,
        "lines": [
            {**line, "unit_price": Decimal("2.5500"), "service": False},
            {**postage, "unit_price": Decimal("18.0000"), "service": True},
        ],
    }
    rows = shop.conn.execute("select sku, quantity, unit_price, service from shop.order_line order by line")
    assert rows.fetchall() == [
        ("85123A", 6, Decimal("2.5500"), False),
        ("POST", 1, Decimal("18.0000"), True),
    ]
    assert shop.conn.execute("select * from shop.customer").fetchall() == [
        ("17850", "customer-17850@example.com")
    ]


def test_an_event_has_the_time_of_its_order(shop: Shop) -> None:
    shop.place([an_order()])

    assert shop.conn.execute("select time from stream.outbox").fetchall() == [(AT,)]


def test_a_return_and_an_adjustment_have_events_of_their_own(shop: Shop, project: Project) -> None:
    shop.place([an_order("C536379", "returned")])
    shop.place([an_order("536589", "adjusted", Line("21777", None, -10, Decimal(0)), customer_id=None)])

    (_, returned, goods), (key, adjusted, moved) = events(shop, project)
    assert (returned, goods["returned_at"], len(goods["lines"])) == ("OrderReturned", AT, 2)
    assert (key, adjusted) == ("536589", "StockAdjusted")
    assert moved == {"adjusted_at": AT, "lines": [{"sku": "21777", "description": None, "quantity": -10}]}


def test_an_adjustment_of_services_alone_moves_nothing_and_has_no_event(shop: Shop, project: Project) -> None:
    assert shop.place([an_order("1", "adjusted", Line("M", "Manual", -1, Decimal(0)))])
    assert events(shop, project) == []


def test_what_is_there_already_is_left_as_it_is(shop: Shop, project: Project) -> None:
    shop.place([an_order("1"), an_order("2")])
    shop.conn.execute("update shop.customer set email = 'new@example.com'")

    counts = sum(shop.place_all([an_order("1"), an_order("2", "placed", HEART), an_order("3")]), Counter())

    assert counts == Counter(placed=1, there=2)
    assert [key for key, _, _ in events(shop, project)] == ["1", "2", "3"]
    assert shop.conn.execute("select count(*) from shop.order_line").fetchone() == (6,)
    assert shop.conn.execute("select email from shop.customer").fetchall() == [("new@example.com",)]


def test_an_order_whose_event_is_refused_leaves_nothing_behind(shop: Shop, project: Project) -> None:
    huge = an_order("2", "placed", *[Line(f"{n}", "W" * 500, 1, Decimal(1)) for n in range(2000)])

    with pytest.raises(InvalidEvent, match="at most 900000 bytes"):
        shop.place([an_order("1"), huge])

    assert events(shop, project) == []
    assert shop.conn.execute("select count(*) from shop.customer_order").fetchone() == (0,)


def test_imports_at_once_place_each_order_once(database_url: str, outbox: Outbox) -> None:
    many = [an_order(str(n), customer_id=str(n % 7)) for n in range(300)]
    placed: Counter[str] = Counter()

    def place(part: list[Order]) -> None:
        with database.connect(database_url, application_name="test-shop", autocommit=True) as connection:
            for counts in Shop(connection, outbox).place_all(part):
                placed.update(counts)

    threads = [threading.Thread(target=place, args=[part]) for part in (many, many[50:], many[110:])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert placed["placed"] == 300
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("select convert_from(key, 'UTF8') from stream.outbox").fetchall()
    assert sorted(rows) == sorted((str(n),) for n in range(300))


def test_a_life_is_written_step_by_step(shop: Shop, project: Project) -> None:
    order = an_order()
    shop.place([order])
    shop.pay(order)
    shop.ship(order)
    shop.take_back(order)
    shop.cancel(order, "lost in the post")

    happened = events(shop, project)
    assert [type for _, type, _ in happened] == [
        "OrderPlaced",
        "OrderPaid",
        "OrderShipped",
        "OrderReturned",
        "OrderCancelled",
    ]
    assert {key for key, _, _ in happened} == {"536365"}
    assert happened[1][2]["amount"] == Decimal("33.3000")
    assert shop.conn.execute("select status from shop.customer_order").fetchall() == [("cancelled",)]


def test_made_up_orders_are_all_placeable_and_the_same_for_the_same_seed(shop: Shop) -> None:
    first, second = (list(made_up(300, seed=7, first_id=1001, at=AT)) for _ in range(2))

    assert first == second
    assert len(shop.place([order for order, _ in first])) == 300
    assert {life for _, life in first} == {"placed", "paid", "shipped", "cancelled", "returned"}
    assert {order.currency for order, _ in first} == {"GBP", "EUR", "JPY", "KWD"}
