"""The receipts group on a real database, without a broker."""

import os
import uuid
from decimal import Decimal

from stream.testing import run


def test_an_order_gets_a_receipt() -> None:
    order = {"customer": "17850", "lines": [{"sku": "cup", "quantity": 2, "price": Decimal("4.50")}]}
    ran = run("receipts", [("OrderPlaced", uuid.uuid4().hex, order)], database_url=os.environ["DATABASE_URL"])
    assert ran.kinds == ["done"]
