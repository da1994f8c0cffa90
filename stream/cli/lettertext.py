"""A dead letter on a terminal: all of it is what others wrote, and made harmless."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from stream.cli.recordtext import header_lines, payload_lines
from stream.cli.text import columns, plural, printable
from stream.keys import shown_key
from stream.letters import LetterDetails
from stream.views import clock

_FRAME = re.compile(r'  File "(?P<path>.*)", line \d+')
_NOT_YOURS = re.compile(r"/(site-packages|dist-packages|lib/python[\d.]+)/|^<frozen ")
_ENGINE = str(Path(__file__).resolve().parents[1]) + "/"


def page(letter: LetterDetails, data: Any, *, whole: bool = False) -> Iterator[str]:
    """The lines of `dlq show`; `whole`: with every frame of the stack."""
    yield from _facts(letter)
    yield ""
    yield "attempts, the newest first"
    yield from (f"  {line}" for line in _attempts(letter))
    if letter.error_stack:
        yield ""
        yield "stack"
        lines = letter.error_stack.splitlines()
        yield from (f"  {printable(line, 400)}" for line in (lines if whole else folded(lines)))
    yield ""
    yield from header_lines(letter.headers)
    yield ""
    yield from payload_lines(letter.value, data, "that are no event of this project's schemas")


def folded(lines: list[str]) -> Iterator[str]:
    """The stack with one line for each row of frames that are neither the handler's nor its project's."""
    hidden = 0
    inside = False  # of a frame that is left out
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None:
            path = frame["path"]
            inside = _NOT_YOURS.search(path) is not None or path.startswith(_ENGINE)
            hidden += inside
        elif not line.startswith("    "):
            inside = False
        if inside:
            continue
        if hidden:
            yield f"  ... {plural(hidden, 'frame')} of libraries"
            hidden = 0
        yield line
    if hidden:
        yield f"  ... {plural(hidden, 'frame')} of libraries"


def _facts(letter: LetterDetails) -> Iterator[str]:
    status = letter.status
    if letter.resolved_at is not None:
        why = f": {printable(letter.resolved_reason)}" if letter.resolved_reason else ""
        status += f" {clock(letter.resolved_at)} by {printable(letter.resolved_by or '?')}{why}"
    behind = plural(letter.followers, "event")
    key = "its key waits for it" if letter.held else "nothing waits for it"
    if letter.followers:
        key += f", {behind} {'waits' if letter.followers == 1 else 'wait'} behind it"
    tries = f"{plural(letter.attempts, 'attempt')} from {clock(letter.first_failed_at)} on"
    rows = [
        ("letter", str(letter.id)),
        ("status", status),
        ("group", f"{letter.group}  (on_dead={letter.on_dead}: {key})"),
        ("event", f"{printable(letter.type or '(no type)')}  {letter.event_id}"),
        ("key", printable(shown_key(letter.key) or "(none)")),
        ("origin", f"{letter.position}  {clock(letter.timestamp)}"),
        ("died", f"{clock(letter.died_at)}  {letter.kind}, stage {letter.stage}, after {tries}"),
        ("worker", printable(letter.worker)),
        ("trace", letter.trace_id or "-"),
        ("fingerprint", letter.fingerprint),
        ("error", printable(f"{letter.error_class}: {letter.error_message}", 1500)),
    ]
    if letter.replays:
        rows.insert(2, ("replays", f"{letter.replays} before this letter"))
    if letter.newer is not None:
        rows.insert(2, ("died again", f"letter {letter.newer}"))
    yield from (f"{name:<12} {text}" for name, text in rows)


def _attempts(letter: LetterDetails) -> list[str]:
    rows = [
        (
            str(error.get("attempt", "?")),
            printable(_at(error)),
            printable(str(error.get("worker", "?"))),
            printable(f"{error.get('class', '?')}: {error.get('message', '')}"),
        )
        for error in letter.errors
    ]
    return columns(("TRY", "AT", "WORKER", "ERROR"), rows)


def _at(error: Mapping[str, Any]) -> str:
    """When a try failed, as other times are shown."""
    try:
        return clock(datetime.fromisoformat(error["at"]))
    except (KeyError, TypeError, ValueError):
        return str(error.get("at", "?"))
