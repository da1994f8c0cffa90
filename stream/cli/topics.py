"""`stream topics`: the topics themselves."""

from __future__ import annotations

import click

from stream.cli.growing import grow


@click.group(
    short_help="Give a topic more partitions.", epilog="Example:  stream topics grow orders --partitions 24"
)
def topics() -> None:
    """The topics of this project."""


topics.add_command(grow)
