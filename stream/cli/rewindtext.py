"""A rewind for people: the plan as a table, as CSV, as JSON, and what is said beside it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click

from stream import offsetfile
from stream.cli.common import print_json, say
from stream.cli.text import columns, plural
from stream.moving import Moved
from stream.rewinds import Mode, Target
from stream.surveys import Survey
from stream.views import clock, rfc3339


class Looking:
    """Says on a terminal how many records were looked up until now."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._said = False

    def __call__(self, done: int, total: int) -> None:
        if self._terminal:
            self._said = True
            click.echo(f"\rlooking up {done:,} of {total:,} records in the ledger ", err=True, nl=False)

    def end(self) -> None:
        if self._said:
            say("")


def print_found(found: Sequence[Survey], mode: Mode | None, *, as_csv: bool, as_json: bool) -> None:
    """On stdout. Several groups: their names in front of the lines, a list in JSON."""
    if as_csv:
        for one in found:
            offsets = {move.place: move.new for move in one.plan.moves}
            group = one.plan.group if len(found) > 1 else None
            click.echo(offsetfile.lines(offsets, group), nl=False)
    elif as_json:
        forms = [json_form(one, mode) for one in found]
        print_json(forms if len(forms) > 1 else forms[0])
    else:
        header = ("GROUP", "TOPIC", "PARTITION", "OLD", "NEW", "RECORDS", "FIRST RECORD", "NOTE")
        for line in columns(header, [row for one in found for row in _rows(one)]):
            click.echo(line)


def json_form(found: Survey, mode: Mode | None) -> dict[str, Any]:
    """The public JSON of a rewind. `looked_up`: of so many records it is known whether they are in the ledger."""
    plan = found.plan
    partitions = []
    for move in plan.moves:
        first = found.first_record_at.get(move.place)
        partitions.append(
            {
                "topic": move.topic,
                "partition": move.partition,
                "old": move.old,
                "new": move.new,
                "records": move.records,
                "first_record_at": None if first is None else rfc3339(first),
                "note": move.note,
            }
        )
    return {
        "group": plan.group,
        "mode": mode,
        "partitions": partitions,
        "total": plan.total,
        "looked_up": found.looked_up,
        "in_ledger": found.in_ledger,
        "parked": found.parked,
        "dead": found.dead,
    }


def _rows(found: Survey) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for move in found.plan.moves:
        first = found.first_record_at.get(move.place)
        rows.append(
            (
                found.plan.group,
                move.topic,
                str(move.partition),
                "-" if move.old is None else str(move.old),
                str(move.new),
                str(move.records),
                "-" if first is None else clock(first),
                move.note or "-",
            )
        )
    return rows


def say_target(group: str, target: Target) -> None:
    """The time that was meant, in UTC and here."""
    if target.time is not None:
        local = target.time.astimezone()
        say(f"{group}: to {clock(target.time)}, here {local.isoformat(timespec='milliseconds')}")


def say_found(found: Survey, mode: Mode | None) -> None:
    """What the plan comes to, beside its table."""
    group, plan = found.plan.group, found.plan
    if plan.total:
        known = f"{found.in_ledger:,} of them are" if found.whole else f"at least {found.in_ledger:,} are"
        looked = "" if found.whole else f" ({found.looked_up:,} were looked up)"
        say(f"{group}: {plural(plan.total, 'record')} to read again; {known} in the ledger{looked}")
    else:
        say(f"{group}: no record to read again")
    if plan.skipped:
        say(f"{group}: {plural(plan.skipped, 'record')} skipped: they were not read, and never will be")
    if found.parked:
        waits = "are tried in their turn" if mode == "reapply" else "stay so"
        say(f"{group}: {plural(found.parked, 'event')} of these wait or are held, and {waits}")
    if found.dead:
        dead = "what is dead is tried again" if mode == "reapply" else "what is dead stays dead"
        say(f"{group}: {plural(found.dead, 'open letter')} of these: {dead}")
        say(f"-> stream dlq list --group {group}")
    uncommitted = sum(move.old is None for move in plan.moves)
    if uncommitted:
        say(f"{group}: {plural(uncommitted, 'partition')} without an offset until now: that cannot be undone")


def say_moved(moved: Moved, rate: float | None) -> None:
    """That it is done, and how it is undone."""
    say(f"{moved.plan.group}: moved, and read back")
    if rate is not None and moved.plan.total:
        say(f"{moved.plan.group}: at most {rate:g}/s run, until it has passed where it was")
    undo = moved.undo
    if undo is not None:
        say(f"undo: {undo}")
        back = f"--from-file {shlex.quote(str(undo))} --repair --execute"
        say(f"-> stream rewind --group {moved.plan.group} {back}   (goes back)")
