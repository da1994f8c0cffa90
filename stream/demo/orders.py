"""What the shop is asked to place: an Order with its Lines, from a CSV file or made up. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

Kind = Literal["placed", "returned", "adjusted"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `quantity` is positive, but in a stock adjustment the signed change of the shelf."""

    sku: str
    description: str | None
    quantity: int
    unit_price: Decimal


@dataclass(frozen=True, slots=True)
class Order:
    """An order placed, goods returned, or a stock adjustment; `at` is in UTC."""

    order_id: str
    kind: Kind
    customer_id: str | None
    country: str | None
    currency: str
    at: datetime
    lines: tuple[Line, ...]
