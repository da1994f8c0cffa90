"""The group `stock` on a real database."""

import threading
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from stream.project import Project
from tests.support.application import Application, Given, a_cancellation, a_return
from tests.support.orders import an_order

AT = datetime(2010, 12, 1, 8, 26, tzinfo=UTC)


@pytest.fixture
def stock(project: Project, database_url: str) -> Application:
    return Application("stock", project, database_url)


def lines(**quantities: int) -> list[dict[str, Any]]:
    [line] = an_order()["lines"]
    return [{**line, "sku": sku, "quantity": quantity} for sku, quantity in quantities.items()]


def placed(**quantities: int) -> dict[str, Any]:
    return an_order() | {"lines": lines(**quantities)}


def returned(**quantities: int) -> dict[str, Any]:
    return a_return(placed(**quantities))


def adjusted(**quantities: int) -> dict[str, Any]:
    return {
        "adjusted_at": AT,
        "lines": [{"sku": sku, "description": None, "quantity": n} for sku, n in quantities.items()],
    }


def levels(conn: psycopg.Connection[Any]) -> dict[str, int]:
    conn.rollback()
    return dict(conn.execute("select sku, on_hand from stock_level").fetchall())


def test_goods_leave_with_an_order_and_come_back_with_a_return(
    stock: Application, conn: psycopg.Connection[Any]
) -> None:
    stock.apply(
        Given("OrderPlaced", "1", placed(mug=6, bag=1)),
        Given("OrderPlaced", "2", placed(mug=5)),
        Given("OrderReturned", "C3", returned(mug=2)),
        Given("OrderCancelled", "2", a_cancellation(placed(mug=5))),
        Given("StockAdjusted", "4", adjusted(bag=-10, lamp=7)),
    )

    assert levels(conn) == {"mug": 996, "bag": 989, "lamp": 1007}


def test_every_movement_is_kept_with_its_event_and_order(
    stock: Application, conn: psycopg.Connection[Any]
) -> None:
    order = Given("OrderPlaced", "1", placed(mug=6, bag=1) | {"lines": lines(mug=6, bag=1) + lines(mug=3)})
    stock.apply(order)

    rows = conn.execute("select event_id, order_id, sku, quantity from stock_movement order by sku")
    assert rows.fetchall() == [(order.id, "1", "bag", -1), (order.id, "1", "mug", -9)]


def test_services_are_no_goods(stock: Application, conn: psycopg.Connection[Any]) -> None:
    order = placed(mug=1, POST=1)
    order["lines"][1]["service"] = True
    stock.apply(Given("OrderPlaced", "1", order))
    assert levels(conn) == {"mug": 999}

    del order["lines"][0]
    [outcome] = stock.apply(Given("OrderPlaced", "2", order))
    assert outcome.kind == "done"
    assert [key for _, key, _ in stock.emitted()] == ["mug"]


def test_below_zero_it_goes_on_and_says_so(
    stock: Application, conn: psycopg.Connection[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    stock.apply(Given("OrderPlaced", "1", placed(mug=999)))
    assert "more sold than there is" not in "".join(capfd.readouterr())

    stock.apply(Given("OrderPlaced", "2", placed(mug=11)))
    assert "more sold than there is" in "".join(capfd.readouterr())
    assert levels(conn) == {"mug": -10}


def test_applied_again_movements_are_replaced_not_added(
    stock: Application, conn: psycopg.Connection[Any]
) -> None:
    events = [
        Given("OrderPlaced", "1", placed(mug=6, bag=1)),
        Given("OrderReturned", "C2", returned(mug=2)),
        Given("StockAdjusted", "3", adjusted(bag=-10)),
    ]
    stock.apply(*events)
    before = levels(conn), conn.execute("select * from stock_movement order by event_id, sku").fetchall()
    stock.forget()

    outcomes = stock.apply(*events[1:])  # any range

    assert [outcome.kind for outcome in outcomes] == ["done", "done"]
    assert levels(conn) == before[0]
    assert conn.execute("select * from stock_movement order by event_id, sku").fetchall() == before[1]


def test_one_check_is_asked_for_every_sku_that_moved(stock: Application) -> None:
    stock.apply(
        Given("OrderPlaced", "1", placed(mug=6, bag=1)),
        Given("OrderPlaced", "2", placed(mug=6)),
        Given("OrderPlaced", "3", placed(mug=6, lamp=2)),
    )

    asked = {(type, key, data["sku"]) for type, key, data in stock.emitted()}
    assert asked == {("StockCheckRequested", sku, sku) for sku in ("bag", "lamp", "mug")}


def test_a_check_reports_what_is_under_its_reorder_level(stock: Application) -> None:
    stock.apply(Given("OrderPlaced", "1", placed(mug=901, bag=900)))

    stock.apply(
        *(
            Given("StockCheckRequested", sku, {"sku": sku, "requested_at": AT})
            for sku in ("mug", "bag", "none")
        )
    )

    low = [event for event in stock.emitted() if event[0] == "StockLow"]
    assert low == [("StockLow", "mug", {"sku": "mug", "on_hand": 99, "reorder_level": 100})]


def test_workers_that_move_the_same_goods_do_not_deadlock(
    stock: Application, conn: psycopg.Connection[Any]
) -> None:
    skus = [f"sku{n}" for n in range(60)]

    def work(name: str, order: list[str]) -> None:
        for n in range(10):
            stock.apply(Given("OrderPlaced", f"{name}{n}", placed(**dict.fromkeys(order, 1))))

    workers = [
        threading.Thread(target=work, args=[name, order])
        for name, order in [("a", skus), ("b", skus[::-1]), ("c", skus[30:] + skus[:30])]
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert levels(conn) == dict.fromkeys(skus, 970)
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    assert conn.execute(deadlocks).fetchone() == (0,)
