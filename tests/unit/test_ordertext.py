"""The timeline of `order show`."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from stream.cli.ordertext import timeline
from stream.orders import GroupOutcome, Order, OrderEvent
from stream.steps import Step

BEGUN = datetime(2026, 8, 2, 14, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGUN + timedelta(seconds=seconds)


def test_a_time_is_since_the_step_before_of_its_group_whatever_epoch_that_was_in() -> None:
    first = GroupOutcome(
        "stock", "done", steps=[Step(at(2), "done"), Step(at(12.5), "called", position="stock.retry[0]@3")]
    )
    again = GroupOutcome("stock", "done", epoch=1, steps=[Step(at(12), "failed"), Step(at(13), "done")])
    other = GroupOutcome("email", "done", steps=[Step(at(12.25), "done")])
    event = OrderEvent(
        uuid.uuid4(), "OrderPlaced", "orders", 0, 7, BEGUN, BEGUN, at(1), groups=[first, again, other]
    )
    _, _written, _published, *lines = timeline(Order(b"1001", [event], [], []))
    assert [line.split()[1:5] for line in lines] == [
        ["+1.0", "s", "stock", "done"],
        ["+10.0", "s", "stock", "failed"],
        ["+11.2", "s", "email", "done"],
        ["+500", "ms", "stock", "called"],
        ["+500", "ms", "stock", "done"],
    ]
