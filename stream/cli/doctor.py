"""`stream doctor`: is everything as it has to be, and what to type where it is not."""

from __future__ import annotations

from collections.abc import Sequence

import click

from stream import doctor as examination
from stream.cli.common import format_option, looking_options, print_json, project_of, say
from stream.cli.text import columns, plural, printable
from stream.config import Config
from stream.errors import CheckFailed
from stream.findings import Finding
from stream.views import as_json


@click.command(
    short_help="Is everything as it has to be?",
    epilog="Example:  stream doctor || stream doctor --format json",
)
@format_option("text", "json")
@looking_options
def doctor(config: Config, format_: str) -> None:
    """Look at project, broker and database, and say what is wrong and what to type next. Changes nothing.

    Success, Warning or Failure; Halted is what could not be looked at, as what it needs has failed. Exit code 5 where
    anything has. It takes ten seconds at most, also where nothing answers.
    """
    found = examination.examine(config, project_of(config))
    if format_ == "json":
        print_json(as_json(found))
    else:
        _print(found)
    failed = [one for one in found if one.status == "failure"]
    if failed:
        names = ", ".join(dict.fromkeys(one.check for one in failed))
        raise CheckFailed(f"{plural(len(failed), 'failure')}: {names}", hint=failed[0].fix)
    warnings = sum(one.status == "warning" for one in found)
    say(f"no failure, {plural(warnings, 'warning')}")


def _print(found: Sequence[Finding]) -> None:
    """Each finding, and under it what to type; what is halted waits for another's."""
    lines = columns(("STATUS", "CHECK", "MESSAGE"), [_cells(one) for one in found])
    click.echo(lines[0])
    for line, one in zip(lines[1:], found, strict=True):
        click.echo(line)
        if one.fix is not None and one.status != "halted":
            click.echo(f"-> {one.fix}")


def _cells(one: Finding) -> tuple[str, str, str]:
    return one.status.capitalize(), one.check, printable(one.message, 500)
