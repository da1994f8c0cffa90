"""The default: one event, one transaction; 8 side by side."""

from consumers._effects import INSERT, effect

from stream import ConsumerGroup, Context, Event

group = ConsumerGroup("single8", topics=["orders"], start="beginning", concurrency=8)


@group.on("OrderPlaced")
def apply(event: Event, ctx: Context) -> None:
    ctx.db.execute(INSERT, effect(event.key, event.data))
