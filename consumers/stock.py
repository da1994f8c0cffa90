"""Stock: goods leave with an order, come back with a return, and are looked at when enough has moved.

Set-based: the movements of all events of a batch are one statement, whatever their number.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

from stream import ConsumerGroup, Context, Event

# 100 orders touch up to 1,500 SKUs, and every SKU's stock check takes a lock of its own until the commit.
group = ConsumerGroup("stock", topics=["orders", "stock"], start="beginning", batch=100)

START_STOCK = 1000
SIGN = {"OrderPlaced": -1, "OrderCancelled": 1, "OrderReturned": 1, "StockAdjusted": 1}

FORGET = "delete from stock_movement where event_id = any(%s) returning sku, quantity"

REMEMBER = """
insert into stock_movement (event_id, order_id, sku, quantity)
select * from unnest(%s::uuid[], %s::text[], %s::text[], %s::bigint[])
"""

# Rows are locked in SKU order, as the arrays are sorted: two workers that meet cannot deadlock.
MOVE = """
insert into stock_level as level (sku, on_hand)
select sku, %s + moved from unnest(%s::text[], %s::bigint[]) as movement (sku, moved)
on conflict (sku) do update set on_hand = level.on_hand + excluded.on_hand - %s
returning sku, on_hand
"""


@group.on(*SIGN, batch=True)
def move_goods(events: list[Event], ctx: Context) -> None:
    movements: Counter[tuple[UUID, str, str]] = Counter()
    for event in events:
        for line in event.data["lines"]:
            if not line.get("service"):  # postage and fees are no goods
                movements[event.id, str(event.key), line["sku"]] += SIGN[event.type] * line["quantity"]

    moved: Counter[str] = Counter()
    for (_, _, sku), quantity in movements.items():
        moved[sku] += quantity
    # Applied before (a range of history run again): its movements are replaced, not added.
    for sku, quantity in ctx.db.execute(FORGET, [[event.id for event in events]]):
        moved[sku] -= quantity
    if not moved:
        return
    columns = [[key[i] for key in movements] for i in range(3)]
    ctx.db.execute(REMEMBER, [*columns, list(movements.values())])
    touched = sorted(moved)
    levels = ctx.db.execute(MOVE, [START_STOCK, touched, [moved[sku] for sku in touched], START_STOCK])
    for sku, on_hand in levels:
        if on_hand < 0 <= on_hand - moved[sku]:
            ctx.log.warning("more sold than there is", sku=sku, on_hand=on_hand)

    # One check per SKU for all orders within half a second, at most 5 s late however busy the SKU is.
    now = datetime.now(UTC)
    for sku in touched:
        ctx.emit(
            "StockCheckRequested",
            key=sku,
            data={"sku": sku, "requested_at": now},
            delay=timedelta(milliseconds=500),
            debounce="stock-check",
            max_wait=timedelta(seconds=5),
        )


@group.on("StockCheckRequested", batch=True)
def check_levels(events: list[Event], ctx: Context) -> None:
    low = ctx.db.execute(
        "select sku, on_hand, reorder_level from stock_level"
        " where sku = any(%s) and on_hand < reorder_level order by sku",
        [[event.data["sku"] for event in events]],
    )
    for sku, on_hand, reorder_level in low:
        ctx.emit("StockLow", key=sku, data={"sku": sku, "on_hand": on_hand, "reorder_level": reorder_level})
