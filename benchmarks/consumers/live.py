"""A group that is there, and keeps up: one event, one transaction."""

from consumers._effects import INSERT, effect

from stream import ConsumerGroup, Context, Event

group = ConsumerGroup("live", topics=["orders"], start="end", concurrency=8)


@group.on("OrderPlaced")
def apply(event: Event, ctx: Context) -> None:
    ctx.db.execute(INSERT, effect(event.key, event.data))
