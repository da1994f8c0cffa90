"""Names of metrics and of lines of the log are in one closed list each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream.signals import LINES, METRICS

STREAM = Path(__file__).resolve().parents[2] / "stream"
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
UNITS = ("_seconds", "_records", "_rows", "_keys", "_partitions", "_total", "_info", "_up")
COUNTS_OF_THINGS = {
    "stream_workers_active",
    "stream_workers_limit",
    "stream_handlers_stalled",
    "stream_group_held",
    "stream_topic_sick",
}
FORBIDDEN_LABELS = {"key", "event_id", "message", "offset", "order"}


def logged(path: Path) -> Iterator[str]:
    """The names of the lines that a module logs: every text that stands first in a call of its `log`."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS
        ):
            continue
        if isinstance(call.func.value, ast.Name) and call.func.value.id == "log":
            name = call.args[1] if call.func.attr == "log" else call.args[0]
            yield from (
                n.value for n in ast.walk(name) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            )


def test_every_line_of_the_log_is_in_the_list_and_every_one_in_the_list_is_logged() -> None:
    assert {name for path in STREAM.rglob("*.py") for name in logged(path)} == LINES


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_named_as_prometheus_wants_it(name: str) -> None:
    metric = METRICS[name]
    assert name.startswith("stream_")
    assert (metric.kind == "counter") == name.endswith("_total")
    assert name.endswith(UNITS) or name in COUNTS_OF_THINGS
    assert metric.help.endswith(".")


@pytest.mark.parametrize("name", METRICS)
def test_no_label_grows_with_the_orders(name: str) -> None:
    assert not FORBIDDEN_LABELS.intersection(METRICS[name].labels)
