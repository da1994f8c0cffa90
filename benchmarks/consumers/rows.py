"""The ordinary handler: one statement an event, 500 events a transaction."""

from consumers._effects import INSERT, effect

from stream import ConsumerGroup, Context, Event

group = ConsumerGroup("rows", topics=["orders"], start="beginning", batch=500)


@group.on("OrderPlaced")
def apply(event: Event, ctx: Context) -> None:
    ctx.db.execute(INSERT, effect(event.key, event.data))
