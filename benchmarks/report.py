"""The result: one table for people, and all of it as JSON."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import confluent_kafka
import psutil

from benchmarks.contest import Result, Sample
from benchmarks.idle import Gauge
from benchmarks.stage import Stage
from stream.stack.jars import KAFKA_VERSION
from stream.stack.kafka import JVM

POSTGRES_SETTINGS = (
    "fsync",
    "synchronous_commit",
    "shared_buffers",
    "max_wal_size",
    "track_commit_timestamp",
)
WORDS = {True: "holds", False: "MISSED", None: ""}


def circumstances(stage: Stage) -> dict[str, str]:
    """What the figures depend on."""
    with stage.scene() as scene:
        settings = []
        for name in POSTGRES_SETTINGS:
            [(value,)] = scene.conn.execute(f"show {name}".encode()).fetchall()
            settings.append(f"{name}={value}")
        version = scene.conn.info.parameter_status("server_version")
    libraries = ("confluent-kafka", "psycopg", "fastavro")
    return {
        "machine": f"{os.cpu_count()} CPUs, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.machine()}",
        "Python": ", ".join(
            [platform.python_version(), *(f"{name} {importlib.metadata.version(name)}" for name in libraries)]
        ),
        "Kafka": f"{KAFKA_VERSION}, one node, {' '.join(JVM[:3])}, librdkafka {confluent_kafka.libversion()[0]}",
        "PostgreSQL": f"{version}, {', '.join(settings)}, TCP",
        "topic": f"{stage.project.topics.topics['orders'].partitions} partitions, replication 1",
        "events": f"OrderPlaced, Avro, {stage.orders.mean_bytes:.0f} bytes on average",
    }


def table(about: dict[str, str], results: Sequence[Result], gauges: Sequence[Gauge]) -> str:
    lines = [f"{name}: {value}" for name, value in about.items()]
    rows = [["", "ours", "against", "ratio", "pairs", "bound", "", "CPU us/event"]]
    rows += [row(result) for result in results]
    rows += [
        [
            g.name,
            f"{g.value:,.1f} {g.unit}",
            "",
            "",
            "",
            "" if g.ceiling is None else f"<= {g.ceiling:g}",
            WORDS[g.holds],
            "",
        ]
        for g in gauges
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines.append("")
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if results:
        lines.append("")
        lines.append(
            "ratio: median [least to most] of the pairs during which the machine did little else;"
            " of all, if not three were"
        )
        lines.append("CPU us/event: contestant + PostgreSQL + broker, ours against theirs, medians")
    return "\n".join(lines)


def row(result: Result) -> list[str]:
    contest, ratios = result.contest, result.ratios
    bound = f">= {contest.floor:g}" if contest.floor is not None else ""
    bound = f"<= {contest.ceiling:g}" if contest.ceiling is not None else bound
    return [
        contest.name,
        spread(result.ours, contest.unit),
        f"{contest.other_name} {spread(result.other, contest.unit)}",
        ", ".join(
            [
                f"{result.ratio:.2f} [{min(ratios):.2f} to {max(ratios):.2f}]",
                *(f"{name} {ratio:.2f}" for name, ratio in result.also.items()),
            ]
        ),
        f"{len(ratios)} of {len(result.ours)}",
        bound,
        WORDS[result.holds],
        f"{cost(result.ours)} / {cost(result.other)}",
    ]


def spread(samples: Sequence[Sample], unit: str) -> str:
    values = [sample.value for sample in samples]
    digits = 0 if median(values) >= 100 else 1
    text = f"{median(values):,.{digits}f} [{min(values):,.{digits}f} to {max(values):,.{digits}f}] {unit}"
    also = [f"{name} {median([s.also[name] for s in samples]):.1f}" for name in samples[0].also]
    return ", ".join([text, *also])


def cost(samples: Sequence[Sample]) -> str:
    parts = [[s.cost.contestant_us, s.cost.postgres_us, s.cost.broker_us] for s in samples]
    return "+".join(f"{median(part):.0f}" for part in zip(*parts, strict=True))


def as_json(about: dict[str, str], results: Sequence[Result], gauges: Sequence[Gauge]) -> str:
    contests: list[dict[str, Any]] = [
        {
            "name": result.contest.name,
            "unit": result.contest.unit,
            "against": result.contest.other_name,
            "ratio": result.ratio,
            "ratios": result.ratios,
            "also": result.also,
            "floor": result.contest.floor,
            "ceiling": result.contest.ceiling,
            "holds": result.holds,
            "ours": [asdict(sample) for sample in result.ours],
            "other": [asdict(sample) for sample in result.other],
        }
        for result in results
    ]
    measured = [asdict(gauge) | {"holds": gauge.holds} for gauge in gauges]
    return json.dumps({"circumstances": about, "contests": contests, "gauges": measured}, indent=2)


def write_json(path: Path, text: str) -> None:
    path.write_text(text + "\n", encoding="utf-8")
