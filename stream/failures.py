"""What is said about a failed event."""

from __future__ import annotations

import structlog

from stream.events import Record, header
from stream.keys import shown_key
from stream.outcomes import Outcome

log = structlog.get_logger("stream.failures")

MOST_TEXT = 1000


def report(group: str, record: Record, outcome: Outcome, *, attempt: int, again_in: float) -> None:
    """Log one failed try, with event, key and position. The record's bytes and the error's text are not trusted."""
    error = outcome.error
    log.error(
        "event.failed",
        group=group,
        event_id=_clamped(header(record.headers, "ce_id")),
        type=_clamped(header(record.headers, "ce_type")),
        key=_clamped(shown_key(record.key)),
        position=record.position,
        stage=outcome.stage,
        error=f"{type(error).__name__}: {_clamped(outcome.reason)}",
        attempt=attempt,
        again_in_seconds=round(again_in, 1),
        # Undecodable bytes, and a refused commit, have no frames but the engine's.
        exc_info=error if outcome.stage == "handler" else None,
    )


def _clamped(text: str | None) -> str | None:
    return text if text is None or len(text) <= MOST_TEXT else text[:MOST_TEXT] + "..."
