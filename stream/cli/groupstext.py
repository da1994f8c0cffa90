"""Groups for `stream groups`: as JSON, as a line, and in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from stream.cli.text import columns, duration, plural, printable
from stream.holds import Held
from stream.overview import GroupDetails, GroupSummary, PartitionView, WorkerView
from stream.views import as_json, clock

PUBLIC = ("group", "state", "members", "lag", "lag_seconds", "parked", "held", "dead", "verdict", "reason")
NOT_MEASURED_YET = {"rate_in": None, "rate_out": None, "eta_seconds": None}


def json_form(one: GroupSummary) -> dict[str, Any]:
    """The public JSON of a group in `groups list`."""
    return {name: getattr(one, name) for name in PUBLIC}


def details_form(found: GroupDetails) -> dict[str, Any]:
    """The public JSON of `groups describe`."""
    partitions = [as_json(one) | NOT_MEASURED_YET for one in found.partitions]
    return json_form(found.summary) | {"partitions": partitions, "workers": as_json(found.workers)}


def print_groups(found: Sequence[GroupSummary]) -> None:
    header = ("GROUP", "STATE", "MEMBERS", "LAG", "BEHIND", "PARKED", "HELD", "DEAD", "VERDICT", "REASON")
    for line in columns(header, [_cells(one) for one in found]):
        click.echo(line)


def _cells(one: GroupSummary) -> tuple[str, ...]:
    waiting = (str(one.parked), str(one.held), str(one.dead))
    reason = printable(one.reason or "-", 120)
    return (one.group, _state(one), str(one.members), *_lag(one), *waiting, one.verdict, reason)


def _state(one: GroupSummary) -> str:
    until = one.holds[0].until if one.holds else None
    return one.state if until is None else f"paused until {clock(until)}"


def _lag(one: GroupSummary | PartitionView) -> tuple[str, str]:
    behind = "-" if one.lag_seconds is None else "0" if not one.lag else duration(one.lag_seconds)
    return _or_dash(one.lag), behind


def words(held: Held) -> str:
    """Why, since when and until when."""
    since = "" if held.since is None else f", since {clock(held.since)}"
    until = "" if held.until is None else f", until {clock(held.until)}"
    return f"{printable(held.reason)}{since}{until}"


def print_details(found: GroupDetails) -> None:
    one = found.summary
    lag, behind = _lag(one)
    click.echo(f"group    {one.group}")
    click.echo(f"state    {_state(one)}, {plural(one.members, 'member')}")
    click.echo(f"verdict  {one.verdict}" + (f": {printable(one.reason)}" if one.reason else ""))
    for held in one.holds:
        click.echo(f"held     {held.by}: {words(held)}")
    click.echo(f"lag      {lag} records, the oldest {behind}" if one.lag else f"lag      {lag}")
    click.echo(f"keys     {one.parked} parked, {one.held} held; {plural(one.dead, 'open letter')}")
    if found.partitions:
        click.echo("")
        header = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "BEHIND", "OWNER", "BLOCKED BY")
        rows = [
            (
                each.topic,
                str(each.partition),
                _or_dash(each.committed),
                str(each.end),
                *_lag(each),
                each.owner or "-",
                printable(each.blocked_by or "-", 80),
            )
            for each in found.partitions
        ]
        click.echo("\n".join(columns(header, rows)))
    if found.workers:
        click.echo("")
        click.echo(
            "\n".join(columns(("WORKER", "PARTITIONS", "PROGRESS"), [_worker(w) for w in found.workers]))
        )


def _worker(one: WorkerView) -> tuple[str, str, str]:
    seen = "" if one.seen_at is None else f" ({clock(one.seen_at)})"
    progress = f"{printable(one.progress)}{seen}" if one.progress else "-"
    return one.worker, str(one.partitions), progress if one.there else "gone; nobody has taken its partitions"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
