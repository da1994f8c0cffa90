"""Alert rules on what a real run showed: its scrapes become the series of a `promtool test rules` file.

Rules speak of minutes and hours. A second of the run is a minute and a half of theirs: scrapes are laid on their clock,
which begins at 0, and so are the moments among the values.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.promtool import promtool
from tests.support.scrapes import exposition, parse

SCALE = 90
STEP_S = 30  # of the rules' clock, between two samples


class Recorder:
    """Scrapes ports, each under its instance's name, until the end of the `with`; `forget` hides one from then on."""

    def __init__(self, ports: Mapping[str, str]) -> None:
        self._ports = dict(ports)
        # Parsed only at the end: the run needs the time for itself.
        self._scrapes: list[tuple[float, dict[str, str]]] = []
        self._stopping = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)
        assert not self._failed, self._failed

    def now(self) -> float:
        """On the rules' clock."""
        return (time.time() - self._scrapes[0][0]) * SCALE if self._scrapes else 0.0

    def forget(self, instance: str) -> None:
        self._ports = {name: base for name, base in self._ports.items() if name != instance}

    def _run(self) -> None:
        try:
            while not self._stopping.wait(0.3):
                self._scrapes.append(
                    (time.time(), {name: exposition(base) for name, base in self._ports.items()})
                )
        except BaseException as error:  # noqa: BLE001  # raised at the end of the `with`
            self._failed.append(error)

    def series(self, wanted: set[str]) -> list[dict[str, str]]:
        """The samples of these metrics, one every STEP_S; where a series ends it is marked so, as Prometheus does."""
        first = self._scrapes[0][0]
        steps = int(self.now() / STEP_S) + 1
        found: dict[str, list[str]] = defaultdict(lambda: ["_"] * steps)
        n = 0
        for step in range(steps):
            while n + 1 < len(self._scrapes) and (self._scrapes[n + 1][0] - first) * SCALE <= step * STEP_S:
                n += 1
            for instance, text in self._scrapes[n][1].items():
                for (name, labels), value in parse(text).samples.items():
                    if name in wanted:
                        shown = ",".join(f'{k}="{v}"' for k, v in sorted({*labels, ("instance", instance)}))
                        if name.endswith("_timestamp_seconds"):
                            value = (value - first) * SCALE
                        found[f"{name}{{{shown}}}"][step] = "NaN" if value != value else f"{value:.3f}"
        return [
            {"series": name, "values": " ".join(_ended(values))} for name, values in sorted(found.items())
        ]


def _ended(values: list[str]) -> list[str]:
    return [
        "stale" if n and value == "_" and values[n - 1] != "_" else value for n, value in enumerate(values)
    ]


def check(
    rules: Path,
    recorder: Recorder,
    folder: Path,
    fired: Mapping[float, Sequence[str]],
    told: Sequence[dict[str, Any]],
) -> None:
    """Fail unless, up to each of these moments, exactly these alerts have fired; `{alertname="...",group="..."}`.

    `told`: alert_rule_tests, as promtool takes them.
    """
    wanted = set(re.findall(r"\bstream_\w+", rules.read_text(encoding="utf-8")))
    ever = 'count by (alertname, group) (max_over_time(ALERTS{alertstate="firing"}[24h]))'
    test = {
        "rule_files": [str(rules)],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [
            {
                "interval": f"{STEP_S}s",
                "input_series": recorder.series(wanted),
                "promql_expr_test": [
                    {
                        "expr": ever,
                        "eval_time": f"{int(moment)}s",
                        "exp_samples": [{"labels": labels, "value": 1} for labels in alerts],
                    }
                    for moment, alerts in fired.items()
                ],
                "alert_rule_test": list(told),
            }
        ],
    }
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump(test, width=10**9))
    done = subprocess.run(
        [promtool(), "test", "rules", str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
