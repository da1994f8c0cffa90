"""`stream schema`: new versions of events, and the check that keeps old records readable."""

from __future__ import annotations

import json
from pathlib import Path

import click

from stream.cli.common import project_option, say
from stream.cli.text import plural
from stream.errors import CheckFailed, SchemaError, UsageError
from stream.project import Project
from stream.schemas import SchemaCatalog, checking
from stream.schemas import lockfile as lock
from stream.schemas.definitions import NAME


@click.group(epilog="Example:  stream schema check")
def schema() -> None:
    """Event schemas: numbered Avro files in schemas/."""


@schema.command(
    short_help="Write the next version of event NAME.", epilog="Example:  stream schema new OrderPlaced"
)
@click.argument("name")
@project_option
def new(name: str, project_dir: Path) -> None:
    """Write the next version of event NAME, or the first, and print its path.

    The new file is a copy of the last version. Give every field that you add a default, or older
    records cannot be read; then run: stream schema check
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"expected an event name such as OrderPlaced, got {name!r:.60}")
    project = Project(project_dir)
    folder = project.root / "schemas"
    versions = project.schemas.versions(name)
    text = versions[-1].path.read_text(encoding="utf-8") if versions else _first_version(name)
    path = folder / f"{_next_number(folder, project.schemas):04d}-{name}.avsc"
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
    click.echo(path)
    if versions:
        say(f"A copy of {versions[-1].path.name}. Edit it, then: stream schema check")
    else:
        say(
            f"The first version of {name}. Edit it, name it in schemas/topics.toml, then: stream schema check"
        )


@schema.command(
    short_help="Check all schemas, and lock new ones.", epilog="Example:  stream schema check --locked"
)
@click.option(
    "--locked", is_flag=True, help="Write nothing; a file without a line in the lock is refused. For CI."
)
@project_option
def check(locked: bool, project_dir: Path) -> None:
    """Check all schemas: exit code 5 where one is wrong, with its file and the place inside it.

    Every version of an event must read what each earlier one wrote, shown by writing and reading values
    at the edges of each type. Every event is in one topic of topics.toml. No number is used twice, no
    type is recursive.

    When all is well, files that are new get a line in schemas/schemas.lock: commit it with them. A file
    with a line there must not change any more, as records may carry its number: make a new version
    instead. Only where no record was ever written with it, take its line out by hand.
    """
    project = Project(project_dir)
    folder = project.root / "schemas"
    lock_path = folder / lock.FILE
    try:
        catalog, topics = project.schemas, project.topics
        problems, added = checking.check(folder, catalog)
    except SchemaError as error:
        raise CheckFailed(error.message, hint=error.hint) from error
    if locked:
        problems += [
            f"{schema.path}: has no line in {lock.FILE}; stream schema check adds it" for schema in added
        ]
    if problems:
        raise CheckFailed("\n".join(problems), hint="stream schema check   (once it is mended)")
    if added:
        lock.add(lock_path, added)
        say(f"locked in {lock_path} (commit it): {', '.join(schema.path.name for schema in added)}")
    for name in catalog.names():
        numbers = " ".join(f"{schema.number:04d}" for schema in catalog.versions(name))
        click.echo(f"{name}  {numbers}  in {topics.topic_of(name)}")
    count = f"{plural(len(catalog.versions()), 'schema')} of {plural(len(catalog.names()), 'event')}"
    say(f"{count}: every version reads its predecessors")


def _next_number(folder: Path, catalog: SchemaCatalog) -> int:
    """Above all files and all locked numbers: a number whose file is gone is not free."""
    numbers = [schema.number for schema in catalog.versions()]
    return max([0, *numbers, *lock.read_lock(folder / lock.FILE)]) + 1


def _first_version(name: str) -> str:
    definition = {
        "type": "record",
        "name": name,
        "doc": "What happened, in one sentence.",
        "fields": [{"name": "note", "type": ["null", "string"], "default": None}],
    }
    return json.dumps(definition, indent=2) + "\n"
