"""`stream stack`: the embedded Kafka and PostgreSQL of a project."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from stream import stack as servers
from stream.cli.common import format_option, print_json, project_option, say
from stream.config import require_folder, shown_address
from stream.errors import Unreachable

NOT_RUNNING = 3


def data_option(command: click.decorators.FC) -> click.decorators.FC:
    option = click.option(
        "--data",
        "data",
        type=click.Path(file_okay=False, path_type=Path),
        help=f"Where ports, logs and data are kept.  [default: {servers.FOLDER} in the project]",
    )
    return project_option(option(command))


@click.group(
    short_help="Kafka and PostgreSQL on this machine.",
    epilog="Example:  stream stack up",
)
def stack() -> None:
    """Kafka and PostgreSQL on this machine, without Docker or an installation."""


@stack.command(short_help="Start both, ready when it returns.", epilog="Example:  stream stack up")
@data_option
def up(project_dir: Path, data: Path | None) -> None:
    """Start what does not run, and return when both are ready; they go on in the background."""
    addresses = servers.up(_folder(project_dir, data), progress=say)
    say(f"ready: Kafka {addresses.bootstrap_servers}, PostgreSQL {shown_address(addresses.database_url)}")


@stack.command(epilog="Example:  stream stack down --delete")
@data_option
@click.option("--delete", is_flag=True, help="Remove topics and database too.")
def down(project_dir: Path, data: Path | None, delete: bool) -> None:
    """Stop both; their data is kept."""
    servers.down(_folder(project_dir, data), delete=delete, progress=say)
    say("stopped and deleted" if delete else "stopped")


@stack.command(epilog="Example:  stream stack status || stream stack up")
@data_option
@format_option("text", "json")
@click.pass_context
def status(ctx: click.Context, project_dir: Path, data: Path | None, format_: str) -> None:
    """Whether they run: exit 0 when both do, 3 otherwise."""
    found = servers.status(_folder(project_dir, data))
    if format_ == "json":
        print_json(
            [
                {
                    "name": one.name,
                    "state": one.state,
                    "address": one.address,
                    "pid": one.pid,
                    "log": str(one.log),
                }
                for one in found
            ]
        )
    else:
        for one in found:
            where = f"  {one.address}  process {one.pid}" if one.pid else ""
            click.echo(f"{one.name:<11} {one.state}{where}  log {one.log}")
    if any(one.state != "up" for one in found):
        say("-> stream stack up")
        ctx.exit(NOT_RUNNING)


@stack.command(epilog='Example:  eval "$(stream stack env)"')
@data_option
def env(project_dir: Path, data: Path | None) -> None:
    """Print the addresses for a shell: eval "$(stream stack env)"."""
    folder = _folder(project_dir, data)
    addresses = servers.running_in(folder)
    if addresses is None:
        raise Unreachable(f"no stack runs in {folder}", hint="stream stack up")
    click.echo(f"export KAFKA_BOOTSTRAP_SERVERS={shlex.quote(addresses.bootstrap_servers)}")
    click.echo(f"export DATABASE_URL={shlex.quote(addresses.database_url)}")


def _folder(project_dir: Path, data: Path | None) -> Path:
    if data is None:
        require_folder(project_dir)
    return (data or project_dir / servers.FOLDER).resolve()
