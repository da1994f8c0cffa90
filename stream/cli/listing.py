"""`stream topics list`: which topics there are."""

from __future__ import annotations

import click

from stream.cli.common import broker_options, format_option, print_json, project_of, say
from stream.cli.text import columns
from stream.config import Config
from stream.kafka.admin import partition_counts
from stream.kafka.positions import bounds


@click.command("list", short_help="Which topics there are.", epilog="Example:  stream topics list")
@format_option("text", "json")
@broker_options
def list_topics(config: Config, format_: str) -> None:
    """The topics under this project's prefix: partitions, records that are kept, and the events declared for it.

    Records are counted by offsets: what compaction and transactions leave between them counts too.
    """
    declared = project_of(config).topics.topics
    counts = {name: n for name, n in partition_counts(config).items() if not name.startswith("__")}
    records = dict.fromkeys(counts, 0)
    for (topic, _), (first, end) in bounds(config, counts).items():
        records[topic] += end - first
    events = {name: declared[name].events if name in declared else () for name in counts}
    if format_ == "json":
        keys = ("topic", "partitions", "records", "events")
        print_json(
            [dict(zip(keys, (n, counts[n], records[n], events[n]), strict=True)) for n in sorted(counts)]
        )
    elif counts:
        rows = [(n, str(counts[n]), str(records[n]), ", ".join(events[n]) or "-") for n in sorted(counts)]
        for line in columns(("TOPIC", "PARTITIONS", "RECORDS", "EVENTS"), rows):
            click.echo(line)
    missing = sorted(set(declared) - set(counts))
    if missing:
        say(f"declared and not there: {', '.join(missing)}\n-> stream migrate")
