"""How well `stream groups describe` foretells when a group will have drained its topic, while more comes."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from contextlib import ExitStack

from benchmarks.groups import shared_out, start
from benchmarks.idle import Gauge
from benchmarks.process import STREAM
from benchmarks.stage import Scene, Stage, say, wait_until
from stream.kafka.lag import offsets

GROUP = "single8"
LIVE_EVERY_S = 0.01  # events that come meanwhile, one after the other
MOST_OFF = 30.0  # percent
PATIENCE_S = 600.0


def measure(stage: Stage, count: int) -> list[Gauge]:
    """A filled topic, a hundred events a second beside it, and a process that begins on them as after an outage: what
    is foretold once a quarter is done, and half, against what then happens."""
    with stage.scene() as scene, ExitStack() as stack:
        scene.fill_topic(stage.orders.placed(count, keys=count // 4))
        stopping = threading.Event()
        live = threading.Thread(target=trickle, args=(scene, count, stopping))
        live.start()
        stack.callback(live.join)
        stack.callback(stopping.set)
        group = start(scene, GROUP, raw=False)
        stack.callback(group.kill)
        wait_until(lambda: group.check_alive() and shared_out(scene, GROUP, 1), "the partitions", every_s=0.1)
        foretold = []
        for share in (0.25, 0.5):
            wait_until(
                lambda share=share: group.check_alive() and lag(scene) < (1 - share) * count,  # type: ignore[misc]
                "a part of it done",
                every_s=0.5,
                timeout_s=PATIENCE_S,
            )
            seconds = eta(scene)
            foretold.append((share, time.monotonic(), seconds))
        near = 1 / LIVE_EVERY_S  # a second's worth is always under way
        wait_until(
            lambda: group.check_alive() and lag(scene) < near,
            "the rest",
            every_s=0.1,
            timeout_s=PATIENCE_S,
        )
        done = time.monotonic()
        group.stop()
    gauges = []
    for share, asked, seconds in foretold:
        took = done - asked
        say(f"  drained: at {share:.0%} foretold {seconds:.1f} s, took {took:.1f} s")
        off = abs(seconds - took) / took * 100
        gauges.append(
            Gauge(f"time to drain foretold at {share:.0%}, {took:.0f} s off by", off, "%", MOST_OFF)
        )
    return gauges


def eta(scene: Scene) -> float:
    """What the command says."""
    command = [
        str(STREAM),
        "groups",
        "describe",
        GROUP,
        "--format",
        "json",
        "--project",
        str(scene.config.project),
    ]
    found = json.loads(subprocess.run(command, env=scene.environment, check=True, capture_output=True).stdout)
    assert found["eta_seconds"] is not None, f"nothing was foretold: {found}"
    return float(found["eta_seconds"])


def lag(scene: Scene) -> int:
    return sum(one.lag or 0 for one in offsets(scene.config, {GROUP: ["orders"]})[GROUP].values())


def trickle(scene: Scene, first: int, stopping: threading.Event) -> None:
    n = first
    while not stopping.wait(LIVE_EVERY_S):
        scene.fill_topic(scene.stage.orders.placed(1, first=n))
        n += 1
