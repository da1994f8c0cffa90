"""A group that has a long history before it: BENCH_BATCH events a transaction; BENCH_CATCH_UP_RATE, if it is set."""

import os

from consumers._effects import effect

from stream import ConsumerGroup, Context, Event

group = ConsumerGroup(
    "newcomer",
    topics=["orders"],
    start="beginning",
    batch=int(os.environ.get("BENCH_BATCH", "1")),
    catch_up_rate=os.environ.get("BENCH_CATCH_UP_RATE"),
)


@group.on("OrderPlaced")
def apply(event: Event, ctx: Context) -> None:
    ctx.db.execute("insert into newcomer_effect values (%s, %s, %s, %s)", effect(event.key, event.data))
