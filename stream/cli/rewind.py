"""`stream rewind`: the offsets of groups moved, as Kafka's own tool does it, with a plan first."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from stream import moving, surveys
from stream.cli.choosing import per_second, span, time
from stream.cli.common import config_options, format_option, say
from stream.cli.opened import opened
from stream.cli.rewindask import Ask, lines_of, mode_of, target_of
from stream.cli.rewindtext import Looking, print_found, say_found, say_moved, say_target
from stream.cli.text import printable
from stream.config import Config
from stream.database import Connection
from stream.errors import PartlyDone, StreamError, UsageError
from stream.kafka.admin import check_reachable
from stream.moving import CutOff, Moving
from stream.overview import Known
from stream.rewinds import RewindPlan, explain, parse_duration, parse_topic
from stream.surveys import Scope, Survey
from stream.topics import retry_topic


def _checked(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """A click callback of a parser that raises UsageError."""

    def convert(_ctx: click.Context, _option: click.Parameter, given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple(parse(text) for text in given)
        return None if given is None else parse(given)

    return convert


def _rate(ctx: click.Context, option: click.Parameter, text: str | None) -> float | None:
    return None if text is None else per_second(ctx, option, text)


@click.command(
    short_help="Move a group's offsets, back or on.",
    epilog="""\b
Examples:
  stream rewind --group stock --by-duration 2h                        the plan
  stream rewind --group stock --by-duration 2h --repair --execute     what was missed
  stream rewind --group stock --to-datetime 2026-08-02T14:00:00.000 --reapply --execute
  stream rewind --group stock --from-file .stream/undo/stock-20260802T141500Z-7.csv --repair --execute
  stream rewind --group stock --to-current --export""",
)
@click.option(
    "--group", "names", multiple=True, required=True, metavar="NAME", help="Of this consumer group."
)
@click.option("--to-earliest", is_flag=True, help="To the first record there is.")
@click.option("--to-latest", is_flag=True, help="To the end: what was not read is skipped.")
@click.option("--to-current", is_flag=True, help="Where it is; with --export, to save that.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="So many records on; -N: back.")
@click.option(
    "--to-datetime", callback=time, metavar="TIME", help="To the first record since then; UTC if no zone."
)
@click.option(
    "--by-duration",
    callback=_checked(parse_duration),
    metavar="P",
    help="To the first record since so long ago: 90m, 2h, 1d, or PT2H30M.",
)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="CSV",
    help="To the offsets of a file as --export prints it.",
)
@click.option("--to-group", metavar="NAME", help="To where that group is.")
@click.option(
    "--topic",
    "scope",
    multiple=True,
    callback=_checked(parse_topic),
    metavar="TOPIC[:0,1]",
    help="Only this topic, or these partitions of it.",
)
@click.option("--repair", is_flag=True, help="Run what was never applied, and nothing else.")
@click.option("--reapply", is_flag=True, help="Run everything once more.")
@click.option("--rate", callback=_rate, metavar="RATE", help="Run at most so much of it: 200/s, 600/m.")
@click.option("--reason", help="Why; kept in stream.operator_action.")
@click.option("--wait", callback=span, metavar="SPAN", help="How long processes may take to make way; 60s.")
@click.option("--export", is_flag=True, help="Print topic,partition,offset lines, and nothing else.")
@click.option("--dry-run", is_flag=True, help="Show the plan, as without --execute.")
@click.option("--execute", is_flag=True, help="Do it; without it, the plan is shown.")
@format_option("text", "json")
@config_options
def rewind(
    config: Config,
    names: tuple[str, ...],
    scope: Scope,
    repair: bool,
    reapply: bool,
    rate: float | None,
    reason: str | None,
    wait: timedelta | None,
    export: bool,
    dry_run: bool,
    execute: bool,
    format_: str,
    **given: Any,
) -> None:
    """Move the committed offsets of groups: a plan first, with --execute the act.

    Running processes of a group finish what they have, make way, and go on where the offsets are then; none has to be
    restarted. The group's retry topic is never moved.

    --repair and --reapply say what running again means; one of them goes with --execute. --repair runs what was never
    applied; what waits for another try stays where it is, and what is dead stays dead: `stream dlq replay` runs it
    again. --reapply runs handlers once more for all that was applied (not those of a group with on_reapply="skip"),
    and what they emit is not written again; what was parked or dead is tried as for the first time.
    """
    if dry_run and execute:
        raise UsageError("--dry-run and --execute are two things; give one of them")
    if export and format_ == "json":
        raise UsageError("--export prints CSV; it does not go with --format json")
    target, lines = target_of(given, names), lines_of(given["from_file"], names)
    ask = Ask(target, scope, names, mode_of(repair, reapply, execute), rate, reason, wait, given, lines)
    check_reachable(config)
    with opened(config, "stream-rewind") as (connection, known):
        for name in names:
            known.require(name, "stream rewind --to-current --group")
        act = partial(_execute if execute else _show, config, connection, known, ask)
        found = [act(name, n) for n, name in enumerate(names)]
    print_found(found, ask.mode, as_csv=export, as_json=format_ == "json")


def _show(config: Config, connection: Connection, known: Known, ask: Ask, group: str, n: int) -> Survey:
    found = _survey(config, connection, _resolve(config, connection, known, ask, group))
    say_target(group, ask.target)
    say_found(found, ask.mode)
    _say_cut_off(group, moving.cut_off(connection, group))
    if n == len(ask.names) - 1:
        say("nothing was changed yet")
        for mode in ("repair", "reapply") if ask.mode is None else (ask.mode,):
            if ask.mode is None:
                say(explain(mode))
            say(f"-> {ask.command(mode)}")
    return found


def _execute(config: Config, connection: Connection, known: Known, ask: Ask, group: str, n: int) -> Survey:
    assert ask.mode is not None
    _say_cut_off(group, moving.close_cut_off(connection, group))
    run = Moving(
        config,
        connection,
        group,
        ask.mode,
        resolve=partial(_resolve, config, connection, known, ask, group),
        wait_s=ask.wait_s,
        rate=ask.rate,
        reason=ask.reason,
        tell=say,
    )
    try:
        # What is refused for what is asked is refused before anybody is disturbed.
        found = _survey(config, connection, run.resolve())
        if moving.is_there(config, found.plan):
            say(f"{group}: it is there already; nothing was changed")
            return found
        moved = run.run()
    except StreamError as error:
        if n == 0 or isinstance(error, PartlyDone):
            raise
        done = ", ".join(ask.names[:n])
        raise PartlyDone(f"{done}: moved; {error.message}", hint=error.hint) from None
    say_target(group, ask.target)
    say_moved(moved, ask.rate)
    found = replace(found, plan=moved.plan)
    say_found(found, ask.mode)
    say(f"-> stream groups describe {shlex.quote(group)}")
    return found


def _resolve(config: Config, connection: Connection, known: Known, ask: Ask, group: str) -> RewindPlan:
    topics = known.topics(group) - {retry_topic(group)}
    plan = surveys.resolve(config, group, sorted(topics), ask.target_of(group), ask.scope)
    surveys.check_ledger(config, connection, plan, ask.mode)
    return plan


def _survey(config: Config, connection: Connection, plan: RewindPlan) -> Survey:
    looking = Looking()
    try:
        return surveys.survey(config, connection, plan, looking)
    finally:
        looking.end()


def _say_cut_off(group: str, found: CutOff | None) -> None:
    if found is not None:
        say(f"{group}: {printable(moving.said_of(found), 1000)}")
