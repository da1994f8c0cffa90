"""Every command that the source says to type next is one that the command line takes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.commands import parse, without_remark

ROOT = Path(__file__).resolve().parents[2] / "stream"

# What stands in a literal for what is known at run time, where a number or a name would not do.
FILLED = {
    "again": "",
    "arguments": "1 --reason x",
    "back": "--from-file /dev/null --repair --execute",
    "chosen": "--key 1",
    "click.get_current_context().info_name": "inspect",
    "clock(pruned)": "2026-08-02T14:00:00Z",
    "end": "",
    "mode": "repair",
    "mode or 'repair'": "repair",
    "name": "release",  # a group, or what is done with a key
    "shlex.join(arguments)": "--reason x",
    "shlex.join(chosen)": "--key 1",
    "shlex.join(options)": "1",
    "shlex.quote(str(undo))": "/dev/null",  # a file there is
    "span_words(older_than)": "1d",
}
BY_FILE = {
    ("cli/outbox.py", "shlex.join(arguments)"): "retry",
    ("cli/parked.py", "shlex.join(arguments)"): "release",
    ("cli/rewindask.py", "shlex.join(words)"): "--group 1 --to-current",
    ("cli/topics.py", "options"): "",
    ("assignment.py", "shlex.join([group, '--topic', topic])"): "1 --topic 1",
    ("starts.py", "shlex.join([group, '--topic', topic])"): "1 --topic 1",
    ("rejected.py", "name"): "retry",
}


def literals() -> Iterator[tuple[str, str]]:
    """(where, command) of each text, docstrings left out, that is a command or has one to type next."""
    for file in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        no_text = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        no_text |= {
            id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
        }
        name = str(file.relative_to(ROOT))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in no_text:
                for command in commands(text(name, node)):
                    yield f"{name}:{node.lineno}", command


def text(file: str, node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else filled(file, ast.unparse(part.value))  # type: ignore[attr-defined]
        for part in node.values
    )


def filled(file: str, expression: str) -> str:
    if " if " in expression:  # an option that may be there
        return ""
    return BY_FILE.get((file, expression), FILLED.get(expression, "1"))


def commands(text: str) -> Iterator[str]:
    if re.match(r"stream [a-z]+", text):
        yield text.splitlines()[0]
    yield from re.findall(r"-> (stream .*)", text)


ALL = sorted({(where, without_remark(command)) for where, command in literals()})


def accepted(command: str) -> bool:
    """What is put together elsewhere may lack its last word here."""
    try:
        parse(command)
        return True
    except click.UsageError as error:
        incomplete = "issing" in error.format_message() or "requires an argument" in error.format_message()
        return incomplete and not command.endswith(" 1") and accepted(f"{command} 1")


def test_there_are_many() -> None:
    assert len(ALL) > 80


@pytest.mark.parametrize("where, command", ALL)
def test_the_command_line_takes_it(where: str, command: str) -> None:
    assert accepted(command), command


@pytest.mark.parametrize(
    "command", ["stream dlq shew 1", "stream dlq list --groop x", "stream outbox retry --key"]
)
def test_what_it_does_not_take_is_noticed(command: str) -> None:
    with pytest.raises(click.UsageError):
        parse(command)
