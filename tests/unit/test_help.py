"""--help of every command: an example, every option told, no summary cut."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from stream.cli import main


def contexts(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[click.Context]:
    context = click.Context(command, info_name=name, parent=parent)
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from contexts(below, name, context)


ALL = {context.command_path: context for context in contexts(main, "stream")}


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_an_example(path: str) -> None:
    assert "Example" in ALL[path].get_help()


@pytest.mark.parametrize("path", ALL)
def test_every_option_says_what_it_does(path: str) -> None:
    options = [each for each in ALL[path].command.params if isinstance(each, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("path", ALL)
def test_no_summary_is_cut(path: str) -> None:
    _, _, commands = ALL[path].get_help().partition("Commands:")
    assert "..." not in commands


def test_the_first_help_tells_the_exit_codes() -> None:
    text = ALL["stream"].get_help()
    assert "Exit codes:" in text
    assert "130, 143" in text
