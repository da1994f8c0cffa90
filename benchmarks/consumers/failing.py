"""As `rows`, but what the environment says fails: one key always, of all others' first tries one in a hundred."""

import os
import zlib

from consumers._effects import INSERT, effect

from stream import ConsumerGroup, Context, Event

ALWAYS = os.environ.get("BENCH_FAILS")  # the key; unset: nothing fails
LATE = os.environ.get("BENCH_FAILS_LATE") == "1"  # only once the SQL is sent, which must be undone then

group = ConsumerGroup(
    "failing", topics=["orders"], start="beginning", batch=int(os.environ.get("BENCH_BATCH", "1"))
)


@group.on("OrderPlaced")
def apply(event: Event, ctx: Context) -> None:
    if not LATE:
        perhaps_fail(event, ctx)
    ctx.db.execute(INSERT, effect(event.key, event.data))
    if LATE:
        perhaps_fail(event, ctx)


def perhaps_fail(event: Event, ctx: Context) -> None:
    """By the event, not by chance: run again because of its neighbours, it does the same again. To say so costs as much
    where nothing fails."""
    unlucky = ctx.attempt == 1 and zlib.crc32(event.id.bytes) % 100 == 0
    if ALWAYS is None:
        return
    if event.key == ALWAYS:
        raise ValueError("never")
    if unlucky:
        raise ConnectionError("not now")
