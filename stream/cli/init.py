"""`stream init`: a new project that runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath

import click

from stream.cli.common import say
from stream.errors import Refused, StreamError

README = PurePath("README.md")
NAMED = {"gitignore": ".gitignore"}  # a package's data may not begin with a dot
NO_PART = ("__pycache__",)


@click.command(short_help="Write a new project that runs.", epilog="Example:  stream init myshop")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Write a new project into DIR: a group with its table, an event, its topic, a test.

    DIR must be empty or not there yet. The files written are printed, then the commands that run them.
    """
    try:
        _refuse_a_used(folder)
        for path, content in template(folder.resolve().name):
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            click.echo(file)
    except OSError as error:
        raise StreamError(f"{error.filename or folder}: cannot be written: {error.strerror}") from error
    say(f"-> cd {shlex.quote(str(folder))}\n-> stream dev")
    say('then, in a second terminal there:\n-> eval "$(stream stack env)"')
    say("-> python place_order.py 1001\n-> stream order show 1001")


def template(name: str) -> Iterator[tuple[PurePath, bytes]]:
    """(path, content) of each file of a new project of this name, in order."""
    for path, file in _walk(files("stream").joinpath("template"), PurePath()):
        content = file.read_bytes()
        yield path, content.replace(b"PROJECT", name.encode(errors="replace")) if path == README else content


def _walk(folder: Traversable, at: PurePath) -> Iterator[tuple[PurePath, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = at / NAMED.get(entry.name, entry.name)
        if entry.is_file():
            yield path, entry
        elif entry.name not in NO_PART:
            yield from _walk(entry, path)


def _refuse_a_used(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        what = "is not empty" if folder.is_dir() else "is a file"
        raise Refused(f"{folder} {what}; nothing was written", hint="stream init ANOTHER_DIR")
