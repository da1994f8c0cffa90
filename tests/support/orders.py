"""Orders for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any


def an_order(lines: int = 1, **changes: Any) -> dict[str, Any]:
    """The data of one OrderPlaced."""
    order: dict[str, Any] = {
        "customer_id": "17850",
        "currency": "GBP",
        "placed_at": datetime(2010, 12, 1, 8, 26, tzinfo=UTC),
        "country": "United Kingdom",
        "lines": [
            {
                "sku": f"85123A{n or ''}",
                "description": "WHITE HANGING HEART T-LIGHT HOLDER",
                "quantity": 6,
                "unit_price": Decimal("2.55"),
                "service": False,
            }
            for n in range(lines)
        ],
    }
    return {**order, **changes}
