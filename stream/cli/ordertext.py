"""The life of an order on a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from stream.cli.text import columns, duration, printable
from stream.keys import shown_key
from stream.orders import GroupOutcome, Order, OrderEvent, Unpublished
from stream.steps import Step
from stream.views import as_json, clock

Line = tuple[str, str, str]

_WAITS = ("state", "due_at", "reason", "error")
_OUTCOME = ("group", "outcome", "at", "attempts", "epoch", "worker", "reason", "letter", "holds")
_BY_HAND = ("replayed", "discarded", "superseded", "released", "retried")


def contract_form(found: Order) -> dict[str, Any]:
    """The public JSON of `order show`."""
    return {
        "key": shown_key(found.key),
        "events": [_event_form(event) for event in found.events],
        "read": [as_json(scan) for scan in found.scans],
    }


def timeline(found: Order) -> Iterator[str]:
    """Each event with its steps by time, and the time that each took: since the step before of its group, the first
    since the event was published."""
    for number, event in enumerate(found.events):
        if number:
            yield ""
        place = event.topic if event.partition is None else f"{event.topic}[{event.partition}]@{event.offset}"
        yield f"{printable(event.type or '(no type)')}  {place}  {event.event_id}"
        first, *others = _lines(event)
        yield from (f"  {line}" for line in columns(first, others))


def _event_form(event: OrderEvent) -> dict[str, Any]:
    row = event.unpublished
    return {
        "event_id": str(event.event_id),
        "type": event.type,
        "topic": event.topic,
        "partition": event.partition,
        "offset": event.offset,
        "time": as_json(event.time),
        "written_at": as_json(event.appended_at),
        "published_at": as_json(event.published_at),
        "repeats": list(event.repeats),
        "waits": None if row is None else {name: as_json(getattr(row, name)) for name in _WAITS},
        "groups": [_group_form(event, outcome) for outcome in event.groups],
    }


def _group_form(event: OrderEvent, outcome: GroupOutcome) -> dict[str, Any]:
    steps = []
    before = event.published_at or event.appended_at
    for step in outcome.steps:
        steps.append(as_json(step) | {"after_seconds": (step.at - before).total_seconds()})
        before = step.at
    return {name: as_json(getattr(outcome, name)) for name in _OUTCOME} | {"steps": steps}


def _lines(event: OrderEvent) -> Iterator[Line]:
    """(time, since the step before, what) of each step; without a time what is not yet."""
    begun = event.appended_at
    if abs((event.time - begun).total_seconds()) >= 1:
        yield clock(event.time), "", "happened"
    yield clock(begun), "", "written"
    if event.unpublished is not None:
        yield from _waiting(event.unpublished)
    if event.published_at is not None:
        again = "".join(f", again at {offset}" for offset in event.repeats)
        yield clock(event.published_at), _since(begun, event.published_at), f"published{again}"
    width = max((len(outcome.group) for outcome in event.groups), default=0)
    steps = [(step.at, outcome, step) for outcome in event.groups for step in outcome.steps]
    before: dict[str, datetime] = {}
    for at, outcome, step in sorted(steps, key=lambda found: found[0]):
        group = outcome.group
        since = _since(before.get(group, event.published_at or begun), at)
        before[group] = at
        yield clock(at), since, f"{group:<{width}}  {_told(step, outcome)}{_details(step, outcome, begun)}"
    for outcome in event.groups:
        if outcome.outcome is None:
            tried = f"  (attempt {outcome.attempts})" if outcome.attempts else ""
            reason = f": {printable(outcome.reason)}" if outcome.reason else ""
            yield "", "", f"{outcome.group:<{width}}  not yet{reason}{tried}"


def _told(step: Step, outcome: GroupOutcome) -> str:
    if step.what == "parked":
        return "parked behind an earlier event of its key"
    if step.what in ("called", "copied"):
        return f"{step.what}  {step.position}"
    if step.what in _BY_HAND and step.by is not None:
        letter = "" if step.letter is None else f"letter {step.letter} "
        return f"{letter}{step.what} by {printable(step.by)}{_reason(step.reason)}"
    if step.what == "dead" and step.letter is not None:
        holds = ", which holds its key" if outcome.holds and step.letter == outcome.letter else ""
        return f"dead, letter {step.letter}{holds}{_reason(step.error)}"
    return f"{step.what}{_reason(step.error or step.reason)}"


def _details(step: Step, outcome: GroupOutcome, begun: datetime) -> str:
    """Which try it was, by whom; at the end of more than one step, how long it took from the beginning."""
    if step.attempt is None:
        return ""
    said = [f"attempt {step.attempt}", f"worker {printable(step.worker or '?')}"]
    if outcome.epoch:
        said.append(f"epoch {outcome.epoch}")
    if step.what in ("done", "skipped") and len(outcome.steps) > 1:
        said.append(f"{duration((step.at - begun).total_seconds())} after it was written")
    return f"  ({', '.join(said)})"


def _waiting(row: Unpublished) -> Iterator[Line]:
    now = datetime.now(UTC)
    if row.due_at is not None:
        yield (
            clock(row.due_at),
            _since(row.created_at, row.due_at),
            f"due (in {duration((row.due_at - now).total_seconds())})",
        )
    elif row.reason is not None:
        yield "", "", f"rejected, {row.reason}{_reason(row.error or '')}"
    else:
        yield "", _since(row.created_at, now), "waits for a relay"


def _reason(text: str | None) -> str:
    return "" if text is None else f": {printable(text)}"


def _since(begun: datetime, then: datetime) -> str:
    return f"+{duration((then - begun).total_seconds())}"
