"""One key's life, put together from records, rows and the ledger."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from stream.events import Record, cloud_headers
from stream.orders import NEVER_RAN, START_MISSED, GroupOutcome, Reader, Unpublished, appended_at, assemble
from stream.steps import Step

BEGIN = datetime(2026, 8, 2, 14, 3, 11, tzinfo=UTC)
_offsets = itertools.count(100)


def record(id: uuid.UUID, after: float = 0, type: str = "OrderPlaced", topic: str = "orders") -> Record:
    """A record published `after` seconds from the beginning; each has an offset above the last one's."""
    published = BEGIN + timedelta(seconds=after)
    headers = [
        (name, value if isinstance(value, bytes) else None)
        for name, value in cloud_headers(str(id), type, BEGIN)
    ]
    return Record(topic, 7, next(_offsets), b"1", b"", headers, int(published.timestamp() * 1000))


def row(id: uuid.UUID, state: str = "waiting") -> Unpublished:
    return Unpublished(state, "orders", id, "OrderPaid", BEGIN, BEGIN, None, None, None, 1)  # type: ignore[arg-type]


def ids(count: int) -> list[uuid.UUID]:
    return [uuid.uuid4() for _ in range(count)]


def test_events_of_two_topics_stand_in_the_order_in_which_they_were_published() -> None:
    placed, invoiced, paid = ids(3)
    records = [record(placed, 0), record(paid, 2), record(invoiced, 1, "InvoiceIssued", "invoices")]
    assert [event.event_id for event in assemble(records, [], [], {}, {})] == [placed, invoiced, paid]


def test_a_topic_keeps_its_own_order_although_the_broker_s_clock_went_back() -> None:
    first, second = ids(2)
    assert [e.event_id for e in assemble([record(first, 5), record(second, 1)], [], [], {}, {})] == [
        first,
        second,
    ]


def test_an_event_that_was_published_twice_is_one_event() -> None:
    [id] = ids(1)
    first, again = record(id), record(id, 1)
    [event] = assemble([first, again], [], [], {}, {})
    assert (event.offset, event.repeats) == (first.offset, [again.offset])


def test_a_row_that_is_in_its_topic_already_counts_as_published() -> None:
    there, waiting = ids(2)
    events = assemble([record(there)], [row(there), row(waiting)], [], {}, {})
    assert [(event.event_id, event.offset is None) for event in events] == [(there, False), (waiting, True)]


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        (Reader("email", ["orders"], ["OrderPlaced"], ran=True), [GroupOutcome("email")]),
        (Reader("email", ["orders"], ["OrderPlaced"]), [GroupOutcome("email", reason=NEVER_RAN)]),
        (Reader("email", ["orders"], ["OrderPaid"], ran=True), []),
        (Reader("email", ["stock"], ["OrderPlaced"], ran=True), []),
        (
            Reader("email", ["orders"], ["OrderPlaced"], True, {"orders": {"7": 10**9}}),
            [GroupOutcome("email", reason=START_MISSED)],
        ),
        (Reader("email", ["orders"], ["OrderPlaced"], True, {"orders": {"7": 0}}), [GroupOutcome("email")]),
        (
            Reader("email", ["orders"], ["OrderPlaced"], True, {"orders": {"6": 10**9}}),
            [GroupOutcome("email")],
        ),
    ],
)
def test_a_group_without_an_outcome_is_named_where_the_event_is_its_business(
    reader: Reader, said: list[GroupOutcome]
) -> None:
    [id] = ids(1)
    [event] = assemble([record(id)], [], [reader], {}, {})
    assert event.groups == said


def test_outcomes_of_every_epoch_are_shown_and_the_group_is_not_silent_then() -> None:
    [id] = ids(1)
    outcomes = [GroupOutcome("email", "done", BEGIN, 1, epoch, "w") for epoch in (0, 1)]
    readers = [Reader("email", ["orders"], ["OrderPlaced"], ran=True)]
    [event] = assemble([record(id)], [], readers, {id: outcomes}, {})
    assert [replace(outcome, steps=()) for outcome in event.groups] == outcomes


def test_an_outcome_stands_at_the_end_of_its_own_epoch_s_steps() -> None:
    [id] = ids(1)
    outcomes = [GroupOutcome("email", "done", BEGIN + timedelta(minutes=n), 2, n, "w") for n in (0, 1)]
    failed = Step(BEGIN - timedelta(seconds=1), "failed", 1, "w", "OSError: no route")
    readers = [Reader("email", ["orders"], ["OrderPlaced"], ran=True)]
    [event] = assemble([record(id)], [], readers, {id: outcomes}, {(id, "email", 0): [failed]})
    first, again = event.groups
    assert [(step.what, step.attempt) for step in first.steps] == [("failed", 1), ("done", 2)]
    assert [(step.what, step.at) for step in again.steps] == [("done", outcomes[1].at)]


def test_a_uuid_of_version_7_says_when_the_event_was_written() -> None:
    written = datetime(2026, 8, 2, 14, 3, 11, 120000, tzinfo=UTC)
    id = uuid.UUID(int=int(written.timestamp() * 1000) << 80 | 7 << 76 | 2 << 62)
    assert appended_at(id, BEGIN) == written
    assert appended_at(uuid.uuid4(), BEGIN) == BEGIN
