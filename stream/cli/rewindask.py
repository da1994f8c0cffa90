"""What was typed after `stream rewind`: the one scenario, what it acts on, and what running again is to mean."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from stream import offsetfile
from stream.cli.common import say
from stream.errors import UsageError
from stream.offsetfile import Offsets
from stream.rewinds import Mode, Target, explain
from stream.surveys import Scope
from stream.views import clock

WAIT_S = 60.0
_FLAGS = ("to_earliest", "to_latest", "to_current")


@dataclass(frozen=True)
class Ask:
    """What was typed. `given`: the options of scenarios; `lines`: of the file, by group, if one was given."""

    target: Target
    scope: Scope
    names: tuple[str, ...]
    mode: Mode | None
    rate: float | None
    reason: str | None
    wait: timedelta | None
    given: Mapping[str, Any]
    lines: Mapping[str | None, Offsets]

    @property
    def wait_s(self) -> float:
        return WAIT_S if self.wait is None else self.wait.total_seconds()

    def target_of(self, group: str) -> Target:
        """The target, with the lines of the file that are this group's."""
        if self.target.scenario != "from-file":
            return self.target
        return Target(
            "from-file", offsets=offsetfile.of_group(self.lines, group, str(self.given["from_file"]))
        )

    def command(self, mode: Mode) -> str:
        """The command that executes what is shown: so long ago is a time by now."""
        words = [word for name in self.names for word in ("--group", name)]
        if self.target.time is not None:
            words += ["--to-datetime", clock(self.target.time)]
        else:
            words += _scenario_words(self.given)
        for topic, numbers in self.scope:
            words += [
                "--topic",
                topic if numbers is None else f"{topic}:{','.join(map(str, sorted(numbers)))}",
            ]
        if self.rate is not None:
            words += ["--rate", f"{self.rate:g}/s"]
        if self.wait is not None:
            words += ["--wait", f"{self.wait.total_seconds():g}s"]
        if self.reason is not None:
            words += ["--reason", self.reason]
        return f"stream rewind {shlex.join(words)} --{mode} --execute"


def target_of(given: Mapping[str, Any], names: tuple[str, ...]) -> Target:
    """The one scenario that was typed; raises UsageError where it is none, or several."""
    typed = [name for name, value in given.items() if value is not None and value is not False]
    if len(typed) != 1:
        said = ", ".join(_option(name) for name in typed) or "none"
        raise UsageError(
            f"expected one of {', '.join(map(_option, given))}; got {said}",
            hint=f"stream rewind --group {shlex.quote(names[0])} --to-current",
        )
    match typed[0]:
        case "to_earliest":
            return Target("to-earliest")
        case "to_latest":
            return Target("to-latest")
        case "to_current":
            return Target("to-current")
        case "to_offset":
            return Target("to-offset", given["to_offset"])
        case "shift_by":
            return Target("shift-by", given["shift_by"])
        case "to_datetime":
            return Target("to-datetime", time=given["to_datetime"])
        case "by_duration":
            return Target("by-duration", time=_ago(given["by_duration"]))
        case "to_group":
            if given["to_group"] in names:
                raise UsageError(f"--to-group: {given['to_group']!r} is the group itself")
            return Target("to-group", group=given["to_group"])
        case _:
            return Target("from-file")


def lines_of(path: Path | None, names: tuple[str, ...]) -> Mapping[str | None, Offsets]:
    """The lines of the file, by group; raises UsageError."""
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--from-file: {path} cannot be read: {error}") from None
    found = offsetfile.parse(text, str(path))
    if len(names) > 1 and None in found:
        raise UsageError(f"--from-file: for several groups each line of {path} begins with its group")
    return found


def mode_of(repair: bool, reapply: bool, execute: bool) -> Mode | None:
    """What running again is to mean; on a terminal it is asked for where it has to be known and was not said."""
    if repair and reapply:
        raise UsageError(f"--repair and --reapply are two things:\n{explain('repair')}\n{explain('reapply')}")
    if repair or reapply or not execute:
        return "repair" if repair else "reapply" if reapply else None
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"say what running again is to mean:\n{explain('repair')}\n{explain('reapply')}",
            hint="stream rewind --help",
        )
    say(f"{explain('repair')}\n{explain('reapply')}")
    answer = click.prompt("repair or reapply?", type=click.Choice(["repair", "reapply"]), err=True)
    return "repair" if answer == "repair" else "reapply"


def _ago(span: timedelta) -> datetime:
    try:
        return datetime.now(UTC) - span
    except OverflowError:
        raise UsageError("--by-duration: there was no such time") from None


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _scenario_words(given: Mapping[str, Any]) -> list[str]:
    [(name, value)] = [
        (name, value) for name, value in given.items() if value is not None and value is not False
    ]
    return [_option(name)] if name in _FLAGS else [_option(name), str(value)]
