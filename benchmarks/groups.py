"""Contests of groups: how fast a filled topic is applied, by one process or by several."""

from __future__ import annotations

import time
from contextlib import ExitStack

from confluent_kafka import KafkaException

from benchmarks.contest import Sample
from benchmarks.process import Clock, Process
from benchmarks.stage import Scene, Stage, wait_until

WARM = 600
FREEZE_S = 5.0  # less than the groups' session timeout


def drain(
    stage: Stage, count: int, *, group: str, raw: bool, processes: int = 1, raw_mode: str | None = None
) -> Sample:
    """Events a second from a filled topic to the last effect.

    The start barrier: all processes have their partitions and have applied events; they are halted while the topic
    is filled, and go on together.
    """
    with stage.scene() as scene, ExitStack() as stack:
        events = stage.orders.placed(WARM + count, keys=(WARM + count) // 4)
        members = [start(scene, group, raw=raw, raw_mode=raw_mode) for _ in range(processes)]
        for member in members:
            stack.callback(member.kill)
        name = f"raw-{group}" if raw else group
        wait_until(
            lambda: all(m.check_alive() for m in members) and shared_out(scene, name, processes),
            "the partitions shared out",
            every_s=0.1,
        )
        scene.fill_topic(events[:WARM])
        wait_until(
            lambda: all(m.check_alive() for m in members) and applied(scene, WARM), "the first effects"
        )

        for member in members:
            member.freeze()
        halted = time.monotonic()
        scene.fill_topic(events[WARM:])
        assert time.monotonic() - halted < FREEZE_S, "filling took so long that the members were thrown out"
        before = Clock.read(stage, members)
        begun = time.monotonic()
        for member in members:
            member.thaw()
        wait_until(
            lambda: all(m.check_alive() for m in members) and applied(scene, WARM + count),
            "all effects",
            every_s=0.005,
        )
        seconds = time.monotonic() - begun
        cost = before.until(Clock.read(stage, members), count)
        for member in members:
            member.stop()
        check_effects(scene, WARM + count)
        return Sample(count / seconds, cost)


def start(scene: Scene, group: str, *, raw: bool, raw_mode: str | None = None) -> Process:
    if raw:
        return Process.raw(scene, "raw_group", raw_mode or group.rstrip("0123456789"), f"raw-{group}")
    return Process.stream(scene, "consume", "--group", group)


def shared_out(scene: Scene, group: str, members: int) -> bool:
    """Whether so many members have all partitions of the topic, each its share."""
    name = scene.config.prefix + group
    try:
        described = scene.stage.admin.describe_consumer_groups([name])[name].result(20)
    except KafkaException:
        return False  # the group is not there yet
    shares = [
        sum(partition.topic == scene.topic for partition in member.assignment.topic_partitions)
        if member.assignment
        else 0
        for member in described.members
    ]
    return len(shares) == members and sum(shares) == scene.partitions and max(shares) - min(shares) <= 1


def applied(scene: Scene, count: int) -> bool:
    """Whether so many effects are there. Their sequence is asked first: counting would take part in the race."""
    return (
        scene.count("select case when is_called then last_value else 0 end from effect_id_seq") >= count
        and scene.count("select count(*) from effect") >= count
    )


def check_effects(scene: Scene, count: int, *, beside: int = 0) -> None:
    """Every event has its effect, none has two, each key's stand in order; and the ledger has each once, with so many
    that another group applied `beside` them."""
    assert scene.count("select count(*) from effect") == count, "not as many effects as events"
    assert scene.count("select count(distinct placed_at) from effect") == count, "an effect happened twice"
    assert scene.count("select count(*) from stream.ledger where outcome = 'done'") == count + beside, (
        "not as many ledger rows as events"
    )
    turned = scene.count(
        "select count(*) from (select placed_at < lag(placed_at) over (partition by order_id order by id) as turned"
        " from effect) e where turned"
    )
    assert turned == 0, f"{turned} effects of a key are out of order"
