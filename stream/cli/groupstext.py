"""Groups for `stream groups`: as JSON, as a line, and in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from stream.cli.text import columns, duration, plural, printable
from stream.holds import Held
from stream.overview import GroupDetails, WorkerView
from stream.trend import Trend
from stream.verdicts import GroupSummary, PartitionView
from stream.views import as_json, clock

PARTITIONS = (
    "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "BEHIND", "IN", "OUT", "DRAINED", "OWNER", "BLOCKED BY",
)  # fmt: skip
PUBLIC = ("group", "state", "members", "lag", "lag_seconds", "parked", "held", "dead", "verdict", "reason")


def json_form(one: GroupSummary) -> dict[str, Any]:
    """The public JSON of a group in `groups list`."""
    return {name: getattr(one, name) for name in PUBLIC}


def details_form(found: GroupDetails) -> dict[str, Any]:
    """The public JSON of `groups describe`."""
    rates = {name: getattr(found.trend, name) for name in ("rate_in", "rate_out", "eta_seconds")}
    lists = {
        name: as_json(getattr(found, name)) for name in ("history", "partitions", "workers", "gaps", "grown")
    }
    return json_form(found.summary) | rates | {"rated_over": found.rated_over} | lists


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
    click.echo(f"verdict  {one.verdict}" + (f": {printable(one.reason, 400)}" if one.reason else ""))
    for held in one.holds:
        click.echo(f"held     {held.by}: {words(held)}")
    click.echo(f"lag      {lag} records, the oldest {behind}" if one.lag else f"lag      {lag}")
    if found.rated_over:
        rates = f"{_rate(found.trend.rate_in)} a second in, {_rate(found.trend.rate_out)} out"
        click.echo(f"rates    {rates}, over {duration(found.rated_over)}")
    if one.lag:
        click.echo(f"drained  {_drained(one.lag, found.trend)}")
    if found.history is not None:
        limit = "" if found.history.rate is None else f", at most {found.history.rate:g} a second"
        click.echo(f"history  {plural(found.history.records, 'record')} left{limit}")
    click.echo(f"keys     {one.parked} parked, {one.held} held; {plural(one.dead, 'open letter')}")
    for gap in found.gaps:
        lost = f"{gap.topic}[{gap.partition}], offsets {gap.from_offset} to {gap.to_offset - 1}"
        click.echo(f"gap      {lost}: retention took them unread, found {clock(gap.at)}")
    for grown in found.grown:
        by = f"by {printable(grown.by)}" if grown.by else "with another tool"
        click.echo(
            f"grown    {grown.topic}[{grown.partition}] came later, {by}; read since {clock(grown.at)}"
        )
    if found.partitions:
        click.echo("")
        click.echo("\n".join(columns(PARTITIONS, [_partition(each) for each in found.partitions])))
    if found.workers:
        click.echo("")
        click.echo(
            "\n".join(columns(("WORKER", "PARTITIONS", "PROGRESS"), [_worker(w) for w in found.workers]))
        )


def _partition(one: PartitionView) -> tuple[str, ...]:
    blocked = "-" if one.blocked_by is None else f"{one.blocked_by}: {one.blocked_why}"
    return (
        one.topic,
        str(one.partition),
        _or_dash(one.committed),
        str(one.end),
        *_lag(one),
        _rate(one.rate_in),
        _rate(one.rate_out),
        _drained(one.lag, one),
        one.owner or "-",
        printable(blocked, 160),
    )


def _rate(rate: float | None) -> str:
    """Three digits are enough."""
    if rate is None:
        return "-"
    return f"{rate:.0f}" if rate == 0 or rate >= 100 else f"{rate:.3g}"


def _drained(lag: int | None, trend: Trend | PartitionView) -> str:
    if lag is None or (lag and trend.rate_out is None):
        return "-"
    if trend.eta_seconds is not None:
        return f"in {duration(trend.eta_seconds)}" if lag else "0"
    return "growing" if (trend.rate_in or 0) > (trend.rate_out or 0) else "never"


def _worker(one: WorkerView) -> tuple[str, str, str]:
    seen = "" if one.seen_at is None else f" ({clock(one.seen_at)})"
    progress = f"{printable(one.progress)}{seen}" if one.progress else "-"
    return one.worker, str(one.partitions), progress if one.there else "gone; nobody has taken its partitions"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
