"""stream consume"""

from __future__ import annotations

import os
import sys

import click

from stream import app, database
from stream.cli.common import process_options, project_of, say
from stream.cli.monitored import monitored
from stream.cli.signals import Stopper
from stream.config import Config
from stream.discovery import discover, select
from stream.fleet import Fleet
from stream.groups import ConsumerGroup
from stream.kafka.admin import check_reachable
from stream.processor import STOP_S, Processor
from stream.project import Project


@click.command(
    short_help="Run consumer groups.", epilog="Example:  stream consume --group invoicing --group stock"
)
@click.option(
    "--group",
    "names",
    multiple=True,
    metavar="NAME",
    help="A group of consumers/; several may be given.",
)
@click.option(
    "--exit-at-end",
    is_flag=True,
    help="End once all that is in the topics now is applied; exit 6 if keys are left that fail.",
)
@process_options
def consume(config: Config, names: tuple[str, ...], exit_at_end: bool) -> None:
    """Run consumer groups in this process; more processes of a group share its partitions.

    A new group begins where its `start` says. With catch_up_rate="200/s" beside it in its file, what was there before
    the group goes no faster, over all its processes, and the groups that are there keep their pace.

    Ends with 0 on SIGTERM or Ctrl-C, once what has started is committed.
    """
    stopper = Stopper(f"waiting for running handlers (up to {STOP_S:.0f} s)")
    if config.smtp_url is not None:
        os.environ["STREAM_SMTP_URL"] = config.smtp_url  # handlers read it there, wherever it was given
    project = project_of(config)
    groups = select(discover(project), names)
    check_reachable(config)
    with database.connect(config.database_url, application_name="stream-consume") as connection:
        database.require_migrated(connection)
        app.require_group_tables(connection, project, {group.name: group for group in groups})
    run(stopper, groups, project, config, exit_at_end=exit_at_end)


def run(
    stopper: Stopper,
    groups: list[ConsumerGroup],
    project: Project,
    config: Config,
    *,
    exit_at_end: bool = False,
) -> None:
    """Run the groups until a signal, or their end; says at the end what was done."""
    processors = [Processor(group, project, config, exit_at_end=exit_at_end) for group in groups]
    fleet = Fleet(processors)
    stopper.stop = fleet.stop
    try:
        with monitored(config, groups=processors):
            say(f"consuming: {', '.join(group.name for group in groups)}; Ctrl-C stops")
            in_time = fleet.run()
    finally:
        for processor in processors:
            done = ", ".join(f"{count} {kind}" for kind, count in sorted(processor.counts.items()))
            say(f"{processor.group.name}: {done or 'nothing'}")
    if not in_time:
        say("not all came to its end in time; it will be done again at the next start")
        sys.stderr.flush()
        os._exit(0)
