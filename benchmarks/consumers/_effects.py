"""What every handler and every raw loop does with an order: the same rows with the same SQL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

INSERT = "insert into effect (order_id, placed_at, lines, items) values (%s, %s, %s, %s)"
INSERT_SET = """
insert into effect (order_id, placed_at, lines, items)
select * from unnest(%s::text[], %s::timestamptz[], %s::int[], %s::int[])
"""


def effect(key: str | None, data: dict[str, Any]) -> tuple[str | None, datetime, int, int]:
    """The columns of one order's effect."""
    lines = data["lines"]
    return key, data["placed_at"], len(lines), sum([line["quantity"] for line in lines])
