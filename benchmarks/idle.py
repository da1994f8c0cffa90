"""What a relay and a group take while nothing happens, and how their memory goes while much does."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

import psutil

from benchmarks.groups import applied, start
from benchmarks.process import Process
from benchmarks.stage import Scene, Stage, say, wait_until

SETTLE_S = 3.0
CHUNK = 10_000
GROUP = "sets"


@dataclass(frozen=True)
class Gauge:
    """One thing measured by itself, and the most it should be."""

    name: str
    value: float
    unit: str
    ceiling: float | None = None

    @property
    def holds(self) -> bool | None:
        return None if self.ceiling is None else self.value <= self.ceiling


def measure(stage: Stage, idle_s: float, events: int) -> list[Gauge]:
    """Idle CPU of both processes and of their sessions; then memory over so many events."""
    with stage.scene() as scene, ExitStack() as stack:
        members = {"relay": Process.stream(scene, "relay"), "group": start(scene, GROUP, raw=False)}
        for member in members.values():
            stack.callback(member.kill)
        feed(scene, members, 0, 1000)
        gauges = idle(scene, members, idle_s) + memory(scene, members, 1000, events)
        for member in members.values():
            member.stop()
        return gauges


def idle(scene: Scene, members: dict[str, Process], seconds: float) -> list[Gauge]:
    time.sleep(SETTLE_S)
    before = used(scene, members)
    time.sleep(seconds)
    after = used(scene, members)
    return [
        Gauge(f"idle CPU of the {name}", (after[name] - before[name]) / seconds * 100, "% of a core", 5.0)
        for name in before
    ]


def used(scene: Scene, members: dict[str, Process]) -> dict[str, float]:
    """CPU seconds until now: of each process, and of its database sessions."""
    sessions = {"relay": 0.0, "group": 0.0}
    found = scene.conn.execute(
        "select pid, application_name = 'stream-relay' from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    ).fetchall()
    for pid, of_relay in found:
        assert isinstance(pid, int)
        times = psutil.Process(pid).cpu_times()
        sessions["relay" if of_relay else "group"] += times.user + times.system
    return {name: member.cpu_s() for name, member in members.items()} | {
        f"{name}'s sessions": seconds for name, seconds in sessions.items()
    }


def memory(scene: Scene, members: dict[str, Process], first: int, events: int) -> list[Gauge]:
    """The largest size, and how much of it came after the first fifth of the events."""
    sizes: dict[str, list[float]] = {name: [] for name in members}
    for done in range(0, events, CHUNK):
        feed(scene, members, first + done, min(CHUNK, events - done))
        for name, member in members.items():
            sizes[name].append(member.rss_mb())
        if done % (10 * CHUNK) == 0:
            now = ", ".join(f"{name} {seen[-1]:.0f} MB" for name, seen in sizes.items())
            say(f"  memory after {done + CHUNK:,} of {events:,} events: {now}")
    gauges = []
    for name, seen in sizes.items():
        gauges.append(Gauge(f"memory of the {name} over {events:,} events", max(seen), "MB", 150.0))
        gauges.append(
            Gauge(f"memory the {name} gained after a fifth", seen[-1] - seen[len(seen) // 5], "MB", 10.0)
        )
    return gauges


def feed(scene: Scene, members: dict[str, Process], first: int, count: int) -> None:
    """Events in at one end, effects out at the other."""
    scene.fill_outbox(scene.stage.orders.placed(count, keys=count // 4, first=first))
    wait_until(
        lambda: all(m.check_alive() for m in members.values()) and applied(scene, first + count),
        "all effects",
    )
