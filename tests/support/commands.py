"""Commands that were printed to be typed next: found, and checked against the real command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from stream.cli import main


def typed_next(text: str) -> Iterator[str]:
    """Each `-> stream ...` of an output, without the remark in brackets behind it."""
    for line in text.splitlines():
        if line.startswith("-> stream "):
            yield without_remark(line.removeprefix("-> "))


def without_remark(command: str) -> str:
    return re.split(r" {2,}", command)[0]


def parse(command: str) -> None:
    """Parse `stream ...` without running it; raises click.UsageError where the command line does not take it."""
    name, *words = shlex.split(command)
    assert name == "stream", command
    context: click.Context = main.make_context(name, words, resilient_parsing=False)
    found: click.Command = main
    while isinstance(found, click.Group):
        words = [*context._protected_args, *context.args]
        if not words:
            return  # a family alone shows its help
        name, below, words = found.resolve_command(context, words)
        assert below is not None
        try:
            context = below.make_context(name, words, parent=context)
        except click.exceptions.NoArgsIsHelpError:
            return
        except click.exceptions.Exit as end:
            assert end.exit_code == 0, command  # --help
            return
        found = below
