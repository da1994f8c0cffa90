"""The set-based handler: one statement for all events of a transaction."""

from consumers._effects import INSERT_SET, effect

from stream import ConsumerGroup, Context, Event

group = ConsumerGroup("sets", topics=["orders"], start="beginning", batch=500)


@group.on("OrderPlaced", batch=True)
def apply(events: list[Event], ctx: Context) -> None:
    columns = zip(*[effect(event.key, event.data) for event in events], strict=True)
    ctx.db.execute(INSERT_SET, [list(column) for column in columns])
