"""Where to start in a topic, as kcat's users type it; and a record's position, as every line here shows it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import click

from stream.cli.choosing import moment
from stream.errors import UsageError
from stream.inspection import BEGINNING, Position

GRAMMAR = """\b
Positions, as kcat has them:
  beginning, end   the first record there is; what comes from now on
  N                offset N
  -N               N offsets before the end of each partition
  s@TIME           from this time on: 2026-08-02T14:00 (UTC if no zone), 2h (ago), or milliseconds
  e@TIME           up to this time; may stand beside one of the others
"""
MOST_OFFSET = 2**63 - 1

_PLACE = re.compile(r"(?P<topic>[^\[\]]+)\[(?P<partition>\d{1,9})\]@(?P<offset>\d{1,18})")


def where(
    _ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> tuple[Position | None, datetime | None]:
    """The value of a repeated option: where to start, None where it is not said, and the time to end at."""
    start, until = None, None
    for text in texts:
        if text.startswith("e@"):
            if until is not None:
                raise click.BadParameter("e@TIME is given twice")
            until = _time(text)
        elif start is not None:
            raise click.BadParameter(f"two places to start: {text!r:.80} is the second")
        else:
            start = _start(text)
    return start, until


def place(text: str) -> tuple[str, int, int] | None:
    """(topic, partition, offset) of `orders[3]@1207`; None where it is none."""
    found = _PLACE.fullmatch(text)
    return None if found is None else (found["topic"], int(found["partition"]), int(found["offset"]))


def _start(text: str) -> Position:
    if text in ("beginning", "end"):
        return BEGINNING if text == "beginning" else Position("end")
    if text == "stored":
        raise UsageError(
            "-o stored: no group is joined here, so nothing is stored; a group's offsets are in its description",
            hint="stream groups list",
        )
    if text.startswith("s@"):
        return Position("time", time=_time(text))
    if re.fullmatch(r"-?\d{1,19}", text, re.ASCII) and abs(int(text)) <= MOST_OFFSET:
        return Position("back" if text[0] == "-" else "offset", abs(int(text)))
    raise click.BadParameter(f"expected beginning, end, N, -N, s@TIME or e@TIME, got {text!r:.80}")


def _time(text: str) -> datetime:
    """The time of `s@...` or `e@...`."""
    said = text[2:]
    if re.fullmatch(r"\d{1,14}", said, re.ASCII):
        return datetime.fromtimestamp(int(said) / 1000, UTC)
    found = moment(click.get_current_context(), click.Option(["-o"]), said)
    assert found is not None
    return found
