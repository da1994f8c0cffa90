"""stream relay"""

from __future__ import annotations

import click

from stream import database
from stream.cli.common import process_options, project_of, say
from stream.cli.monitored import monitored
from stream.cli.signals import Stopper
from stream.config import Config
from stream.errors import PartlyDone
from stream.kafka.admin import check_reachable
from stream.relay import DRAIN_S, Relay


@click.command(epilog="Example:  stream relay --once")
@click.option(
    "--once", is_flag=True, help="Publish what is there and due, then end; exit 6 if something cannot be."
)
@process_options
def relay(config: Config, once: bool) -> None:
    """Publish outbox rows to their topics, in order per key.

    Run one a database, or several: they share the work, and take over within seconds when one dies. Ends with 0
    on SIGTERM or Ctrl-C, once what is in flight is acknowledged.
    """
    stopper = Stopper(f"waiting for rows in flight to be acknowledged (up to {DRAIN_S:.0f} s)")
    project = project_of(config)
    check_reachable(config)
    with database.connect(config.database_url, application_name="stream-relay") as connection:
        database.require_migrated(connection)
    this = Relay(config, project)
    stopper.stop = this.stop
    if once:
        run_out(this)
    else:
        with monitored(config, relay=this):
            say("relaying; Ctrl-C stops")
            this.run()


def run_out(relay: Relay) -> None:
    """Until nothing is publishable or due. Raises PartlyDone naming sick topics and rejected rows."""
    done = relay.run_until_empty()
    say(f"{done.published} published")
    problems = [f"topic {topic}: {reason}" for topic, reason in done.sick.items()]
    problems += [f"topic {topic}: {rows} rows rejected" for topic, rows in done.rejected.items()]
    if problems:
        raise PartlyDone("; ".join(problems), hint="stream outbox status   (and stream outbox rejected)")
