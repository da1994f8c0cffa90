"""What a process shows on its port: scraped as Prometheus does, read with its client's own parser."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes import Command


@dataclass(frozen=True)
class Scrape:
    """Sample values by name and labels."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of the samples of this name that have these labels; None where there is none."""
        wanted = labels.items()
        found = [value for (of, its), value in self.samples.items() if of == name and wanted <= set(its)]
        return sum(found) if found else None

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.samples}


def get(url: str) -> tuple[int, str]:
    """Status and body."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scrape(base: str) -> Scrape:
    return parse(exposition(base))


def exposition(base: str) -> str:
    """What is scraped, as it came."""
    status, text = get(f"{base}/metrics")
    assert status == 200
    return text


def parse(text: str) -> Scrape:
    return Scrape(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


def health(base: str, path: str) -> tuple[int, dict[str, Any]]:
    status, text = get(base + path)
    return status, json.loads(text)


def address_of(command: Command) -> str:
    """Where a spawned command says that its port is."""
    command.says("metrics: http://")
    found = re.search(r"metrics: (http://\S+)/metrics", command.stderr)
    assert found is not None
    return found[1]
