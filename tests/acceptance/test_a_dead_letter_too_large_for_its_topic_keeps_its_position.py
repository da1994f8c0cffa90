"""A copy carries up to ten kilobytes more than its original. Where it would pass its topic's limit it goes without
the payload; the broker refuses none, and the database has them whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stream.config import Config
from stream.events import cloud_headers
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
        order = an_order()
        noise = bytes(dice.choices(range(1, 256), k=size * 2 // 3)).decode(
            "latin-1"
        )  # of about `size` bytes of UTF-8
        order["lines"][0]["description"] = noise
        payload = project.codec.encode("OrderPlaced", order)
        headers = cloud_headers(f"event-{size}", "OrderPlaced", order["placed_at"])
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
