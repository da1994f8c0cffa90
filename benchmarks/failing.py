"""Contest of failing: how fast a topic is applied while one of its keys never succeeds, and all others fail now and
then, against the same group without failures."""

from __future__ import annotations

import time
from contextlib import ExitStack

from benchmarks.contest import Sample
from benchmarks.groups import FREEZE_S, applied, check_effects, shared_out, start
from benchmarks.process import Clock, Process
from benchmarks.stage import Scene, Stage, wait_until

GROUP = "failing"
KEYS = 500
WARM = 2 * KEYS
SCALE = "0.01"  # of the pauses between tries: the race is not about them, and takes a second


def drain(stage: Stage, count: int, *, batch: int, late: bool = False, fails: bool) -> Sample:
    """Events a second from a filled topic to the last effect of all keys that can succeed; a relay brings retries."""
    with stage.scene() as scene, ExitStack() as stack:
        events = stage.orders.placed(WARM + count, keys=KEYS)
        never = events[0].key if fails else None
        good = [event for event in events if event.key != never]
        scene.settings = {"STREAM_TIME_SCALE": SCALE, "BENCH_BATCH": str(batch)}
        if never is not None:
            scene.settings |= {"BENCH_FAILS": never.decode(), "BENCH_FAILS_LATE": str(int(late))}
        relay, group = members = [Process.stream(scene, "relay"), start(scene, GROUP, raw=False)]
        for member in members:
            stack.callback(member.kill)
        wait_until(lambda: group.check_alive() and shared_out(scene, GROUP, 1), "the partitions", every_s=0.1)
        scene.fill_topic(events[:WARM])
        warm = sum(event.key != never for event in events[:WARM])
        wait_until(lambda: group.check_alive() and applied(scene, warm), "the first effects")
        if fails:
            wait_until(lambda: letters(scene) >= 2, "the first dead letters")

        group.freeze()
        halted = time.monotonic()
        scene.fill_topic(events[WARM:])
        assert time.monotonic() - halted < FREEZE_S, "filling took so long that the group was thrown out"
        before = Clock.read(stage, members)
        begun = time.monotonic()
        group.thaw()
        wait_until(
            lambda: all(m.check_alive() for m in members) and applied(scene, len(good)),
            "all effects",
            every_s=0.005,
        )
        seconds = time.monotonic() - begun
        cost = before.until(Clock.read(stage, members), count)
        group.stop()
        relay.stop()
        check_effects(scene, len(good))
        return Sample(count / seconds, cost, {"dead letters": float(letters(scene))})


def letters(scene: Scene) -> int:
    return scene.count("select count(*) from stream.dead_letter")
