"""How long a person waits for the life of one order, and for the last records, on a topic with much history."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import replace
from statistics import median

from benchmarks.idle import Gauge
from benchmarks.orders import TOPIC
from benchmarks.process import STREAM
from benchmarks.stage import Scene, Stage, say

CHUNK = 50_000
AN_ORDER = 4  # events of a key
TIMES = 5


def measure(stage: Stage, events: int) -> list[Gauge]:
    """`stream order show` of an old order and of a new one, and `stream topics tail`: the whole command each time."""
    with stage.scene() as scene:
        for first in range(0, events, CHUNK):
            placed = stage.orders.placed(min(CHUNK, events - first), first=first)
            scene.fill_topic([replace(one, key=key(first + n)) for n, one in enumerate(placed)])
            say(f"  {first + len(placed):,} of {events:,} records in the topic")
        old, new = key(0).decode(), key(events - 1).decode()
        shown = {
            f"order show, of {events:,} records, an old order": ("order", "show", old, "--format", "json"),
            f"order show, of {events:,} records, a new order": ("order", "show", new, "--format", "json"),
            f"topics tail, of {events:,} records": ("topics", "tail", TOPIC, "--format", "json"),
        }
        return [
            Gauge(name, median(seconds(scene, *words) for _ in range(TIMES)), "s", 2.0)
            for name, words in shown.items()
        ]


def key(n: int) -> bytes:
    """The order that event number n is of."""
    return str(536365 + n // AN_ORDER).encode()


def seconds(scene: Scene, *words: str) -> float:
    """From start to end of the process; it must have found something."""
    begun = time.monotonic()
    done = subprocess.run(
        [STREAM, *words, "--project", str(scene.config.project)],
        env=scene.environment,
        capture_output=True,
        check=True,
    )
    took = time.monotonic() - begun
    found = json.loads(done.stdout)
    assert len(found["events"] if isinstance(found, dict) else found) >= AN_ORDER, done.stderr
    return took
