"""Receipts: one for every order placed, with its total."""

from stream import ConsumerGroup, Context, Event

# start: a new group begins with the oldest orders there are. One that sends mail would rather begin at the "end".
# Once there are many orders and other groups, a new one leaves these their pace with catch_up_rate="200/s".
# batch: up to 100 orders in one transaction, as the handler touches nothing but the database.
group = ConsumerGroup("receipts", topics=["orders"], start="beginning", batch=100)


@group.on("OrderPlaced")
def write_receipt(event: Event, ctx: Context) -> None:
    total = sum(line["quantity"] * line["price"] for line in event.data["lines"])
    if total == 0:
        return ctx.skip("nothing to pay")
    ctx.db.execute(
        "insert into receipt (order_id, customer, total) values (%s, %s, %s)"
        # Once as it is; this is for history that is applied again on purpose (stream rewind --reapply).
        " on conflict (order_id) do update set customer = excluded.customer, total = excluded.total",
        [event.key, event.data["customer"], total],
    )
