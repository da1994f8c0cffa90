"""stream migrate"""

from __future__ import annotations

from pathlib import Path

import click

from stream import app
from stream.cli.common import config_options, project_of, say
from stream.config import Config
from stream.project import Project


def print_sql(ctx: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    """--sql needs the project folder only: neither database nor broker."""
    if asked:
        click.echo(app.sql_of(Project(Path(ctx.params.get("project_dir") or "."))))
        ctx.exit()


@click.command(epilog="Example:  stream migrate --check || stream migrate")
@click.option("--check", is_flag=True, help="Change nothing; exit 5 and name what is missing.")
@click.option(
    "--sql",
    is_flag=True,
    expose_value=False,
    callback=print_sql,
    help="Print all the SQL for an empty database.",
)
@config_options
def migrate(config: Config, check: bool) -> None:
    """Bring the database and the topics to what this project declares.

    Applies the package's migrations, the project's event types, the tables of groups (consumers/NAME.sql) that are
    new or changed, and creates the topics that are missing. Safe to repeat; so must consumers/NAME.sql be.
    """
    project = project_of(config)
    if check:
        app.check(config, project)
        say("nothing to migrate")
        return
    done = app.migrate(config, project)
    for line in done.lines() if not done.empty else ["nothing to migrate"]:
        say(line)
