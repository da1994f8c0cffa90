"""The shop: order rows and their events in one transaction, the way an application writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from importlib.resources import files
from typing import Any

from stream.database import Connection
from stream.demo.orders import Kind, Line, Order
from stream.outbox import Outbox

# Of a bulk import, one transaction: an order is in it whole or not at all, and the key locks stay few.
CHUNK = 100

INSERT_CUSTOMERS = """
insert into shop.customer (customer_id, email)
select id, 'customer-' || id || '@example.com' from unnest(%s::text[]) as id order by id
on conflict do nothing
"""

INSERT_ORDERS = """
insert into shop.customer_order (order_id, kind, status, customer_id, country, currency, ordered_at)
select order_id, kind, kind, customer_id, country, currency, ordered_at
  from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[])
    as new (order_id, kind, customer_id, country, currency, ordered_at)
 order by order_id, kind
on conflict do nothing
returning order_id, kind
"""

INSERT_LINES = """
insert into shop.order_line (order_id, kind, line, sku, description, quantity, unit_price, service)
select * from unnest(%s::text[], %s::text[], %s::int[], %s::text[], %s::text[], %s::int[], %s::numeric[],
                     %s::boolean[])
"""

TYPES: Mapping[Kind, tuple[str, str]] = {
    "placed": ("OrderPlaced", "placed_at"),
    "returned": ("OrderReturned", "returned_at"),
    "adjusted": ("StockAdjusted", "adjusted_at"),
}


def make_tables(conn: Connection) -> None:
    """Make the shop's tables where they are missing."""
    with conn.transaction():
        # `if not exists` collides with itself where two start at once.
        conn.execute("select pg_advisory_xact_lock(hashtextextended('shop.sql', 0))")
        conn.execute(files("stream").joinpath("demo", "shop.sql").read_text(encoding="utf-8"))


class Shop:
    """One shop on one connection in autocommit: each call is a transaction. Not thread-safe."""

    def __init__(self, conn: Connection, outbox: Outbox) -> None:
        """Make the shop's tables where they are missing, and read which codes are services."""
        self.conn, self.outbox = conn, outbox
        make_tables(conn)
        self.services = {code for (code,) in conn.execute("select code from shop.service_code")}

    def place_all(self, orders: Sequence[Order]) -> Iterator[Counter[str]]:
        """Place many orders; yields after each transaction how many of a kind are new, or were `there`."""
        for start in range(0, len(orders), CHUNK):
            chunk = orders[start : start + CHUNK]
            new = self.place(chunk)
            counts = Counter[str](order.kind for order in new)
            counts["there"] = len(chunk) - len(new)
            yield counts

    def place(self, orders: Sequence[Order]) -> list[Order]:
        """Place the orders in one transaction; those that are there already are left as they are.

        Returns the new ones. An order without any goods to adjust has no event.
        """
        with self.conn.transaction():
            customers = sorted({order.customer_id for order in orders if order.customer_id is not None})
            self.conn.execute(INSERT_CUSTOMERS, [customers])
            columns = [
                [order.order_id for order in orders],
                [order.kind for order in orders],
                [order.customer_id for order in orders],
                [order.country for order in orders],
                [order.currency for order in orders],
                [order.at for order in orders],
            ]
            inserted = set(self.conn.execute(INSERT_ORDERS, columns).fetchall())
            new = [order for order in orders if (order.order_id, order.kind) in inserted]
            self._insert_lines(new)
            self.outbox.append_many(self.conn, [event for order in new for event in self._events(order)])
        return new

    def pay(self, order: Order) -> None:
        amount = sum((line.quantity * line.unit_price for line in order.lines), Decimal(0))
        data = {"paid_at": datetime.now(UTC), "amount": amount, "currency": order.currency}
        self._change(order, "paid", "OrderPaid", data)

    def ship(self, order: Order) -> None:
        data = {"shipped_at": datetime.now(UTC), "carrier": "Parcel Post", "tracking": f"PP{order.order_id}"}
        self._change(order, "shipped", "OrderShipped", data)

    def cancel(self, order: Order, reason: str) -> None:
        data = {
            "cancelled_at": datetime.now(UTC),
            "reason": reason,
            "currency": order.currency,
            "customer_id": order.customer_id,
            "lines": self._lines(order),
        }
        self._change(order, "cancelled", "OrderCancelled", data)

    def take_back(self, order: Order) -> None:
        """The customer sends everything back."""
        data = {
            "returned_at": datetime.now(UTC),
            "customer_id": order.customer_id,
            "currency": order.currency,
            "country": order.country,
            "lines": self._lines(order),
        }
        self._change(order, "returned", "OrderReturned", data)

    def _change(self, order: Order, status: str, type: str, data: Mapping[str, Any]) -> None:
        with self.conn.transaction():
            self.conn.execute(
                "update shop.customer_order set status = %s where order_id = %s and kind = %s",
                [status, order.order_id, order.kind],
            )
            self.outbox.append(self.conn, type, key=order.order_id, data=data)

    def _insert_lines(self, orders: Sequence[Order]) -> None:
        rows = [(order, number, line) for order in orders for number, line in enumerate(order.lines, 1)]
        self.conn.execute(
            INSERT_LINES,
            [
                [order.order_id for order, _, _ in rows],
                [order.kind for order, _, _ in rows],
                [number for _, number, _ in rows],
                [line.sku for _, _, line in rows],
                [line.description for _, _, line in rows],
                [line.quantity for _, _, line in rows],
                [line.unit_price for _, _, line in rows],
                [line.sku in self.services for _, _, line in rows],
            ],
        )

    def _events(self, order: Order) -> Iterator[dict[str, Any]]:
        type, time_field = TYPES[order.kind]
        if order.kind == "adjusted":
            goods = [line for line in order.lines if line.sku not in self.services]
            data: dict[str, Any] = {"lines": [_moved(line) for line in goods]}
        else:
            data = {
                "customer_id": order.customer_id,
                "currency": order.currency,
                "country": order.country,
                "lines": self._lines(order),
            }
        if data["lines"]:
            data[time_field] = order.at
            yield {"type": type, "key": order.order_id, "time": order.at, "data": data}

    def _lines(self, order: Order) -> list[dict[str, Any]]:
        return [
            {**_moved(line), "unit_price": line.unit_price, "service": line.sku in self.services}
            for line in order.lines
        ]


def _moved(line: Line) -> dict[str, Any]:
    return {"sku": line.sku, "description": line.description, "quantity": line.quantity}
