"""Contestants run as processes of their own, and CPU time is read from the outside, alike for all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.orders import ROOT
from benchmarks.stage import Scene, Stage

STREAM = Path(sys.executable).with_name("stream")
STOP_S = 40.0


class Process:
    """A contestant at work in a scene; the scene shows its log if anything fails."""

    def __init__(self, scene: Scene, *command: str) -> None:
        self.command = command
        name = "-".join(Path(part).stem for part in command if not part.startswith("-"))
        log_file = scene.stage.folder / f"{len(scene.logs)}-{name}.log"
        scene.logs.append(log_file)
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=scene.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._seen = psutil.Process(self._process.pid)

    @classmethod
    def stream(cls, scene: Scene, *arguments: str) -> Process:
        """The product's own command."""
        return cls(
            scene, str(STREAM), "--log-format", "json", *arguments, "--project", str(scene.config.project)
        )

    @classmethod
    def raw(cls, scene: Scene, module: str, *arguments: str) -> Process:
        return cls(scene, sys.executable, "-m", f"benchmarks.{module}", *arguments)

    def check_alive(self) -> bool:
        """True, or RuntimeError."""
        if self._process.poll() is not None:
            raise RuntimeError(f"{' '.join(self.command)} ended with {self._process.returncode}")
        return True

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def cpu_s(self) -> float:
        times = self._seen.cpu_times()
        return times.user + times.system

    def rss_mb(self) -> float:
        return self._seen.memory_info().rss / 1e6

    def stop(self) -> None:
        """SIGTERM, and it must end well."""
        self.check_alive()
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(STOP_S)
        if code not in (0, 143):
            raise RuntimeError(f"{' '.join(self.command)} ended with {code}")

    def kill(self) -> None:
        """Whatever its state: nothing is left running."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True)
class Clock:
    """CPU seconds used until now: of the contestants, of PostgreSQL, of the broker, of the whole machine."""

    at: float
    contestants: float
    postgres: float
    broker: float
    own: float
    machine: float

    @classmethod
    def read(cls, stage: Stage, processes: list[Process]) -> Clock:
        busy = psutil.cpu_times()
        return cls(
            time.monotonic(),
            sum(process.cpu_s() for process in processes),
            tree_cpu_s(stage.pids["postgres"]),
            tree_cpu_s(stage.pids["kafka"]),
            tree_cpu_s(os.getpid(), alone=True),
            busy.user + busy.system + busy.nice + getattr(busy, "irq", 0.0) + getattr(busy, "softirq", 0.0),
        )

    def until(self, later: Clock, events: int) -> Cost:
        ours = (
            later.contestants - self.contestants,
            later.postgres - self.postgres,
            later.broker - self.broker,
        )
        known = sum(ours) + later.own - self.own
        foreign = max(later.machine - self.machine - known, 0.0) / max(later.at - self.at, 1e-9)
        contestants, postgres, broker = (seconds * 1e6 / events for seconds in ours)
        return Cost(contestants, postgres, broker, foreign)


@dataclass(frozen=True)
class Cost:
    """CPU microseconds an event, and how many cores worked for somebody else meanwhile."""

    contestant_us: float
    postgres_us: float
    broker_us: float
    foreign_cores: float


def tree_cpu_s(pid: int, *, alone: bool = False) -> float:
    """CPU seconds of a process, its live children and those it has waited for."""
    process = psutil.Process(pid)
    times = process.cpu_times()
    total = times.user + times.system
    if alone:
        return total
    total += times.children_user + times.children_system
    for child in process.children():
        try:
            child_times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += child_times.user + child_times.system
    return total
