"""Placing: the shop at work on a thread of its own, at the pace of a busy day."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from stream import database
from stream.config import Config
from stream.demo import makebelieve
from stream.demo.makebelieve import Life
from stream.demo.orders import Order
from stream.demo.shop import CHUNK, Shop
from stream.outbox import Outbox
from stream.project import Project

FIRST_ID = 100001
ORDERS_A_SECOND = 25.0
STEP_LATER = 12  # orders placed between two steps of one order's life


class Placing:
    """Places `orders` of a file, or `count` made-up ones with a full life. `check` raises what went wrong."""

    def __init__(
        self, config: Config, project: Project, *, count: int, orders: Sequence[Order] | None
    ) -> None:
        self.done = False
        self._config, self._project = config, project
        self._count, self._orders = count, orders
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="shop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise what ended the shop."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with database.connect(
                self._config.database_url, application_name="stream-demo-shop", autocommit=True
            ) as connection:
                shop = Shop(connection, Outbox(self._project))
                if self._orders is not None:
                    self._place_all(shop, self._orders)
                else:
                    self._live(shop)
            self.done = not self._stopping.is_set()
        except Exception as error:  # noqa: BLE001  # raised again by check(), on the demo's own thread
            self._failure = error

    def _place_all(self, shop: Shop, orders: Sequence[Order]) -> None:
        for _ in shop.place_all(orders):
            if self._stopping.wait(CHUNK / ORDERS_A_SECOND / 8):
                return

    def _live(self, shop: Shop) -> None:
        """One order after the other; each goes on with its life while later ones are placed."""
        later: deque[tuple[int, Callable[[], None]]] = deque()
        now = datetime.now(UTC)
        made_up = makebelieve.orders(
            self._count,
            seed=int(now.timestamp()),
            first_id=FIRST_ID,
            at=now,
        )
        for n, (order, life) in enumerate(made_up):
            if self._stopping.wait(1 / ORDERS_A_SECOND):
                return
            order = replace(order, at=datetime.now(UTC))
            shop.place([order])
            for i, step in enumerate(steps(shop, order, life), 1):
                later.append((n + i * STEP_LATER, step))
            for due, step in list(later):
                if due <= n:
                    later.remove((due, step))
                    step()
        for _, step in sorted(later, key=lambda entry: entry[0]):
            if self._stopping.is_set():
                return
            step()


def steps(shop: Shop, order: Order, life: Life) -> list[Callable[[], None]]:
    """What happens to an order after it is placed."""
    pay, ship = partial(shop.pay, order), partial(shop.ship, order)
    match life:
        case "paid":
            return [pay]
        case "shipped":
            return [pay, ship]
        case "returned":
            return [pay, ship, partial(shop.take_back, order)]
        case "cancelled":
            return [partial(shop.cancel, order, "changed my mind")]
    return []
