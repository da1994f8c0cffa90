"""deploy/alerts.yml: it asks for metrics that there are, and each alert ends with a command that there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from stream.cli import main
from stream.signals import METRICS

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "alerts.yml"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}


def labels_asked_for(expression: str) -> set[str]:
    by = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    matched = re.findall(r"\{([^}]*)\}", expression)
    return {name.strip() for names in by for name in names.split(",")} | {
        name for text in matched for name in re.findall(r"(\w+)\s*(?:=|!=)", text)
    }


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_asks_for_metrics_and_labels_that_there_are(name: str) -> None:
    expression = ALERTS[name]["expr"]
    metrics = re.findall(r"\bstream_\w+", expression)
    assert metrics
    assert set(metrics) <= METRICS.keys()
    assert labels_asked_for(expression) <= {label for metric in metrics for label in METRICS[metric].labels}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_names_nothing_that_its_expression_lost(name: str) -> None:
    told = set(re.findall(r"\$labels\.(\w+)", str(ALERTS[name]["annotations"])))
    kept = re.search(r"\bby \(([^)]*)\)", ALERTS[name]["expr"])
    assert told <= (set(kept[1].split(", ")) if kept else set())


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_ends_with_a_command_that_the_program_understands(name: str) -> None:
    description = ALERTS[name]["annotations"]["description"]
    words = shlex.split(re.sub(r"\{\{.*?\}\}", "email", description.rpartition(" -> ")[2]))
    assert words[0] == "stream"
    command: click.Command = main
    context = click.Context(main)
    arguments = words[1:]
    while isinstance(command, click.Group):
        found = command.get_command(context, arguments[0])
        assert found is not None, words
        command, arguments = found, arguments[1:]
    command.make_context(words[-1], arguments, parent=context)


@pytest.mark.parametrize("name", ALERTS)
def test_what_is_over_in_five_minutes_wakes_nobody(name: str) -> None:
    assert ALERTS[name]["labels"]["severity"] in ("warning", "critical")
    if name != "StreamHandlerStalled":  # its expression looks back
        assert ALERTS[name]["for"] == "5m"
