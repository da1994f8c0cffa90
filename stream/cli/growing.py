"""`stream topics grow`: more partitions."""

from __future__ import annotations

import shlex
from typing import Any

import click

from stream import growing
from stream.cli.common import config_options, format_option, print_json, project_of, say
from stream.cli.migrated import migrated
from stream.cli.text import columns, plural
from stream.config import Config
from stream.growing import Growth


@click.command(
    short_help="Give a topic more partitions.",
    epilog="Example:  stream topics grow orders --partitions 24 --execute",
)
@click.argument("topic")
@click.option(
    "--partitions",
    type=click.IntRange(1, 100_000),
    required=True,
    help="How many it is to have, old ones included.",
)
@click.option("--execute", is_flag=True, help="Do it; without it the plan is shown.")
@click.option("--reason", help="Why; kept in stream.operator_action.")
@format_option("text", "json")
@config_options
def grow(
    config: Config, topic: str, partitions: int, execute: bool, reason: str | None, format_: str
) -> None:
    """Give a topic more partitions, once every group that reads it is drained.

    Most keys move to another partition then, and a key's order holds within one only. So it is refused, with exit code
    4 and the groups named, while one of them has records or parked keys of the topic left. Events that relays publish
    meanwhile may still pass each other: stop them first. New partitions are read from their beginning. A topic never
    shrinks.
    """
    with migrated(config, "stream-topics") as connection:
        growth = growing.plan(config, connection, project_of(config), topic, partitions)
        if format_ == "json":
            print_json(_form(growth))
        else:
            _print(growth)
        if execute:
            growing.grow(config, connection, growth, reason)
        else:
            growth.check()
    if growth.relays:
        say(f"{plural(growth.relays, 'relay')} at work: what is published meanwhile may pass each other")
    if execute:
        say(f"{topic} has {growth.to} partitions now; groups read the new ones from the beginning")
    if growth.declared is not None and growth.declared != growth.to:
        say(f"schemas/topics.toml says {growth.declared}: write {growth.to} there")
    if not execute:
        say(f"-> stream topics grow {shlex.quote(topic)} --partitions {partitions} --execute")


def _form(growth: Growth) -> dict[str, Any]:
    readers = [{"group": one.group, "lag": one.lag, "parked": one.parked} for one in growth.readers]
    return {"topic": growth.topic, "from": growth.from_, "to": growth.to, "groups": readers}


def _print(growth: Growth) -> None:
    click.echo(f"{growth.topic}: {growth.from_} partitions, to be {growth.to}")
    if growth.readers:
        rows = [
            (
                one.group,
                "-" if one.lag is None else str(one.lag),
                str(one.parked),
                "yes" if one.drained else "no",
            )
            for one in growth.readers
        ]
        click.echo("\n".join(columns(("GROUP", "LAG", "PARKED", "DRAINED"), rows)))
