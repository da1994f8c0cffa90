"""How an error ends a command: one sentence, the command to type next, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from stream.errors import GroupError, SchemaError, StreamError, Unreachable, UsageError


def ending(error: Exception, path: str) -> StreamError | None:
    """The error as the command shows it, with a next command; None where it is a mistake of this package.

    `path`: the command as it was typed, without its options: `stream dlq replay`.
    """
    if isinstance(error, StreamError):
        shown = error
    elif (lost := _of_the_database(error)) is not None:
        shown = lost
    else:
        return None
    shown.hint = shown.hint or _next(shown, path)
    return shown


def path_of(root: click.Group, ctx: click.Context, words: Sequence[str]) -> str:
    """`stream dlq replay` of `["dlq", "replay", "41", ...]`."""
    path, command = [ctx.info_name or "stream"], root
    for word in words:
        below = command.get_command(ctx, word) if isinstance(command, click.Group) else None
        if below is None:
            break
        path.append(word)
        command = below  # type: ignore[assignment]  # a group or a command
    return " ".join(path)


def _next(error: StreamError, path: str) -> str:
    """What helps with errors of this kind."""
    if isinstance(error, SchemaError):
        return "stream schema check   (once it is mended)"
    if isinstance(error, GroupError):
        return "stream migrate --check   (once it is mended)"
    if isinstance(error, UsageError):
        return f"{path} --help"
    return "stream stack status" if path.startswith("stream stack") else "stream doctor"


def _of_the_database(error: Exception) -> StreamError | None:
    """An error of psycopg, which is loaded only where a command has connected."""
    psycopg = sys.modules.get("psycopg")
    if psycopg is None or not isinstance(error, psycopg.Error):
        return None
    reason = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, psycopg.OperationalError):
        return Unreachable(f"the connection to PostgreSQL was lost: {reason}")
    return StreamError(f"PostgreSQL refused a statement: {reason}")
