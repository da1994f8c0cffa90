"""python -m benchmarks [--quick | --long] [--only relay,rows,...] [--pairs N] [--json FILE]"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import append, draining, failing, groups, idle, latency, relay, report, showing, starving
from benchmarks.contest import Contest, Result, Sample, hold
from benchmarks.stage import Stage, say


@dataclass(frozen=True)
class Size:
    """How much of everything: events a run, unless the name says seconds."""

    pairs: int
    relay: int
    held: int
    batch: int
    single: int
    failing: int
    latency_s: int
    idle_s: float
    memory: int
    append: int
    shown: int
    draining: int
    starving: int


QUICK = Size(
    1,
    relay=6_000,
    held=6_000,
    batch=4_000,
    single=400,
    failing=1_000,
    latency_s=2,
    idle_s=2,
    memory=4_000,
    append=200,
    shown=20_000,
    draining=20_000,
    starving=40_000,
)
NORMAL = Size(
    5,
    relay=60_000,
    held=60_000,
    batch=30_000,
    single=3_000,
    failing=10_000,
    latency_s=10,
    idle_s=10,
    memory=100_000,
    append=3_000,
    shown=1_000_000,
    draining=60_000,
    starving=60_000,
)
LONG = Size(
    7,
    relay=60_000,
    held=300_000,
    batch=50_000,
    single=5_000,
    failing=30_000,
    latency_s=20,
    idle_s=30,
    memory=1_000_000,
    append=5_000,
    shown=1_000_000,
    draining=200_000,
    starving=120_000,
)


def contests(stage: Stage, size: Size) -> dict[str, list[Contest]]:
    """Name -> the contests it stands for."""
    relayed = partial(relay.drain, stage)
    applied = partial(groups.drain, stage)
    beside = partial(relayed, size.held, keys=None, raw=False)
    appended = partial(append.measure, stage, size.append)
    starved = partial(starving.measure, stage, size.latency_s, size.starving)
    return {
        "relay": [
            against_raw("relay, a key an event", partial(relayed, size.relay, keys=None), floor=0.6),
            against_raw("relay, 50 keys", partial(relayed, size.relay // 6, keys=50)),
            against_raw("relay, one key", partial(relayed, size.relay // 30, keys=1)),
        ],
        "held": [
            Contest(
                f"relay, {size.held:,} events beside an open transaction",
                "/s",
                ours=partial(beside, held_open=True),
                other=beside,
                other_name="without",
                floor=0.8,
            )
        ],
        "rows": [
            against_raw(
                "batch=500, a statement an event", partial(applied, size.batch, group="rows"), floor=0.8
            ),
            against_raw(
                "the same, raw decodes all first",
                partial(applied, size.batch, group="rows", raw_mode="ahead"),
            ),
        ],
        "sets": [against_raw("batch=500, set-based", partial(applied, size.batch, group="sets"), floor=0.8)],
        "single": [
            against_raw(
                "an event a transaction, one at a time", partial(applied, size.single, group="single1")
            ),
            against_raw(
                "an event a transaction, 8 side by side", partial(applied, size.single, group="single8")
            ),
        ],
        "workers": [
            against_raw(
                "two processes, a statement an event",
                partial(applied, size.batch, group="rows", processes=2),
                floor=0.9,
            ),
            against_raw(
                "two processes, set-based", partial(applied, size.batch, group="sets", processes=2), floor=0.9
            ),
        ],
        "failing": [
            Contest(
                name,
                "/s",
                partial(failing.drain, stage, size.failing, fails=True, **how),
                partial(failing.drain, stage, size.failing, fails=False, **how),
                floor=floor,
                other_name="without",
            )
            for name, how, floor in (
                ("a key that never succeeds, 1 % failures, an event a transaction", {"batch": 1}, 0.9),
                ("the same, batch=500, before any SQL", {"batch": 500}, 0.9),
                ("the same, batch=500, after their SQL", {"batch": 500, "late": True}, 0.5),
            )
        ],
        "latency": [
            against_raw(
                "commit to effect at 100 events/s, median",
                partial(latency.measure, stage, size.latency_s),
                unit="ms",
                ceiling=1.5,
            )
        ],
        "starving": [
            Contest(
                f"effect at 100 events/s beside a new group {how}, p95",
                "ms",
                ours=partial(starved, newcomer=True, rate=rate, batch=batch),
                other=partial(starved, newcomer=False),
                ceiling=ceiling,
                other_name="alone",
            )
            for how, rate, batch, ceiling in (
                ("at 200/s", "200/s", 1, 2.0),
                ("at 200/s, batch=500", "200/s", 500, 1.5),
                ("without a rate", None, 1, None),
            )
        ],
        "append": [
            Contest(name, "/s", partial(appended, way), partial(appended, "insert"), other_name="insert")
            for name, way in (
                ("stream.append_encoded", "encoded"),
                ("Outbox.append, which encodes", "append"),
            )
        ],
    }


def against_raw(
    name: str,
    run: Callable[..., Sample],
    *,
    unit: str = "/s",
    floor: float | None = None,
    ceiling: float | None = None,
) -> Contest:
    return Contest(name, unit, partial(run, raw=False), partial(run, raw=True), floor=floor, ceiling=ceiling)


def main() -> int:
    """Exit 0, or 1 where a bound is missed in a run that is not a quick one."""
    arguments = parse()
    size = QUICK if arguments.quick else LONG if arguments.long else NORMAL
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    stage = Stage()
    results: list[Result] = []
    gauges: list[idle.Gauge] = []
    try:
        stage.open()
        known = contests(stage, size)
        for name in arguments.only or [*known, "idle", "showing", "draining"]:
            say(name)
            if name == "idle":
                gauges += idle.measure(stage, size.idle_s, size.memory)
            if name == "showing":
                gauges += showing.measure(stage, size.shown)
            if name == "draining":
                gauges += draining.measure(stage, size.draining)
            for contest in known.get(name, []):
                results.append(hold(contest, arguments.pairs or size.pairs))
        about = report.circumstances(stage)
    finally:
        stage.close()
    print(report.table(about, results, gauges))
    if arguments.json:
        report.write_json(arguments.json, report.as_json(about, results, gauges))
    missed = False in [result.holds for result in results] + [gauge.holds for gauge in gauges]
    return 1 if missed and not arguments.quick else 0


def parse() -> argparse.Namespace:
    names = (
        *("relay", "held", "rows", "sets", "single", "workers", "failing", "latency", "starving", "append"),
        *("idle", "showing", "draining"),
    )
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--quick", action="store_true", help="see that all of it runs, in about a minute")
    how_much.add_argument(
        "--long", action="store_true", help="300,000 events beside an open transaction, a million for memory"
    )
    parser.add_argument(
        "--only", type=lambda text: text.split(","), metavar="NAMES", help="of " + ",".join(names)
    )
    parser.add_argument("--pairs", type=int, help="runs of each side of a contest")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs there")
    arguments = parser.parse_args()
    unknown = set(arguments.only or ()) - set(names)
    if unknown:
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; known are {', '.join(names)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
