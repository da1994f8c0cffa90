"""A copy carries up to ten kilobytes more than its original. Where it would pass its topic's limit it goes without
the payload; the broker refuses none, and the database has them whole. Where the limit was lowered under a running group
it does refuse some: they are set aside, and no other is."""

from __future__ import annotations

import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream.config import Config
from stream.events import cloud_headers
from stream.project import Project
from tests.support.cli import stream, stream_json
from tests.support.effects import Effects, consume, migrate, order_project
from tests.support.orders import an_order
from tests.support.processes import Command, run
from tests.support.topics import produce_raw, read_all, set_limit
from tests.support.waiting import until

LIMIT = 60_000
SIZES = range(LIMIT - 14_000, LIMIT + 2_000, 1_000)
# A message and a stack as long as they are kept.
FAIL = """\
deep = lambda n: deep(n - 1) if n else {}["x" * 5000]
    deep(300)"""


@pytest.mark.timeout(90)
def test_a_dead_letter_too_large_for_its_topic_keeps_its_position(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    environment = {**environment, "STREAM_TIME_SCALE": "0.05"}
    project = order_project(tmp_path / "shop", before=FAIL, attempts=2)
    migrate(project, environment)
    for topic in ("testers.retry", "testers.dlq"):
        set_limit(config, topic, LIMIT)

    dice = random.Random(1)  # what can be compressed may be larger than the limit
    records: dict[bytes, tuple[bytes, list[tuple[str, bytes | None]]]] = {}
    for size in SIZES:
        payload, headers = an_event(project, dice, f"event-{size}", size)
        records[f"fails {size}".encode()] = (payload, [*headers, ("x-shop", b"\xff")])
        records[f"garbage {size}".encode()] = (
            b"\x01" + dice.randbytes(size),
            [("x-shop", b"\xff"), ("x", None)],
        )
    produce_raw(config, "orders", [(key, value, headers) for key, (value, headers) in records.items()])
    positions = {m.key(): (m.partition(), m.offset()) for m in read_all(config, "orders")}

    relay = Command("relay", env=environment, cwd=project.root)
    worker = consume(project, environment)
    until(
        lambda: effects.fetch("select count(*) from stream.dead_letter") == [(len(records),)],
        40,
        lambda: worker.stderr[-3000:],
    )
    assert worker.stop() == 0
    assert relay.stop() == 0
    assert run("relay", "--once", env=environment, cwd=project.root).wait() == 0
    assert effects.fetch("select count(*) from stream.outbox_rejected") == [(0,)]

    copies = {m.key(): m for m in read_all(config, "testers.dlq")}
    assert copies.keys() == records.keys()
    for key, copy in copies.items():
        value, headers = records[key]
        assert copy.value() in (value, None)
        assert (copy.headers() or [])[: len(headers)] == headers
        error = dict((copy.headers() or [])[len(headers) :])
        position = (int(error["stream.error.partition"]), int(error["stream.error.offset"]))
        assert position == positions[key]
    for what in ("fails", "garbage"):
        whole = [copies[f"{what} {size}".encode()].value() is not None for size in SIZES]
        assert whole == sorted(whole, reverse=True)  # the smaller ones, up to one size
        assert whole[0] and not whole[-1]
    stored = dict(effects.fetch("select key, value from stream.dead_letter"))
    assert stored == {key: value for key, (value, _) in records.items()}


def test_a_dead_letter_its_topic_refuses_after_all_is_set_aside_and_no_other_is(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    project = order_project(tmp_path / "shop", before="raise ValueError('broken')", attempts=1)
    config = replace(config, project=project.root)
    migrate(project, environment)
    relay = Command("relay", env=environment, cwd=project.root)
    worker = consume(project, environment)
    dice = random.Random(1)
    records: dict[bytes, Any] = {}

    def fail(**sizes: int) -> None:
        """An order of each key, of about so many bytes, and wait until all are dead."""
        new = {key.encode(): an_event(project, dice, key, size) for key, size in sizes.items()}
        records.update(new)
        produce_raw(config, "orders", [(key, *event) for key, event in new.items()])
        until(lambda: letters() == records.keys(), 30, lambda: worker.stderr[-3000:])

    def letters() -> set[bytes]:
        return {key for (key,) in effects.fetch("select key from stream.dead_letter")}

    def published() -> dict[bytes, bytes | None]:
        return {m.key() or b"": m.value() for m in read_all(config, "testers.dlq")}

    fail(warm=100)  # the relay's batches, too, are as large as the limit was
    until(lambda: published().keys() == {b"warm"})
    set_limit(config, "testers.dlq", LIMIT)
    [(believed,)] = effects.fetch("select most_record_bytes from stream.group_state")
    assert believed > LIMIT
    large = [b"large", b"larger"]
    relay.send(signal.SIGSTOP)  # then it finds all of them at once: batches of a large one and innocent ones
    fail(large=2 * LIMIT, larger=3 * LIMIT, **{f"small-{n}": 100 for n in range(30)})
    relay.send(signal.SIGCONT)
    fail(later=100)
    until(lambda: published().keys() == records.keys() - set(large), 30, lambda: relay.stderr[-3000:])
    until(lambda: effects.fetch("select count(*) from stream.outbox") == [(0,)])

    listed = stream_json(config, "dlq", "list", "--all")
    assert {letter["key"].encode() for letter in listed} == records.keys()
    rejected = stream_json(config, "outbox", "rejected")
    assert {row["key"].encode(): (row["topic"], row["reason"]) for row in rejected} == dict.fromkeys(
        large, ("testers.dlq", "refused")
    )

    set_limit(config, "testers.dlq", 4 * LIMIT)
    for key in large:
        assert (
            stream(config, "outbox", "retry", "--topic", "testers.dlq", "--key", key.decode()).exit_code == 0
        )
    until(lambda: published() == {key: value for key, (value, _) in records.items()})
    assert worker.stop() == 0
    assert relay.stop() == 0


def an_event(
    project: Project, dice: random.Random, id: str, size: int
) -> tuple[bytes, list[tuple[str, bytes | None]]]:
    """Value and headers of an order of about so many bytes, which cannot be compressed."""
    order = an_order()
    noise = bytes(dice.choices(range(1, 256), k=size * 2 // 3)).decode("latin-1")  # `size` bytes of UTF-8
    order["lines"][0]["description"] = noise
    headers = cloud_headers(id, "OrderPlaced", order["placed_at"])
    return project.codec.encode("OrderPlaced", order), headers
