"""Thousands of records that are no events, many of which claim to be huge: each is a dead letter, and they take no
more memory the more there are of them."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from stream.config import Config
from stream.events import cloud_headers
from tests.support.effects import Effects, consume, migrate, order_project
from tests.support.orders import an_order
from tests.support.topics import produce_raw
from tests.support.waiting import until

pytestmark = pytest.mark.soak

WAVES, EACH, GOOD = 6, 500, 20
GROWTH_MB = 25


@pytest.mark.timeout(120)
def test_many_poison_records_leave_memory_flat(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    project = order_project(tmp_path / "shop", batch=100)
    migrate(project, environment)
    good = project.codec.encode("OrderPlaced", an_order())
    head = project.codec.encode("OrderPlaced", an_order(0))[:-1]  # up to the number of its lines
    huge = long(2**40)
    dice = random.Random(1)

    def poison(n: int) -> bytes:
        """In turn: noise; 2^40 lines; the same in a block of a terabyte; a text of a terabyte; a torn order."""
        noise = dice.randbytes(dice.randrange(1, 20_000))
        kinds = (
            b"\x01" + noise,
            head + huge + noise,
            head + long(-(2**40)) + huge + noise,
            head + long(1) + huge + noise,
            good[: dice.randrange(6, len(good))],
        )
        return kinds[n % len(kinds)]

    worker = consume(project, environment)
    sizes: list[float] = []  # the largest of each wave

    def done(wave: int) -> bool:
        sizes[wave] = max(sizes[wave], psutil.Process(worker.pid).memory_info().rss / 1e6)
        dead = effects.fetch("select count(*) from stream.dead_letter")[0][0]
        return bool(dead == EACH * (wave + 1) and effects.count() == GOOD * (wave + 1))

    for wave in range(WAVES):
        sizes.append(0.0)
        records = [(f"k{n % 50}".encode(), poison(n), None) for n in range(EACH)]
        ids = [str(uuid.uuid4()) for _ in range(GOOD)]
        now = datetime.now(UTC)
        records += [(id.encode(), good, cloud_headers(id, "OrderPlaced", now)) for id in ids]
        produce_raw(config, "orders", records)
        until(lambda wave=wave: done(wave), 40, lambda: f"{sizes}\n{worker.stderr[-3000:]}")
    assert max(sizes) - sizes[0] < GROWTH_MB, sizes
    assert worker.stop() == 0


def long(n: int) -> bytes:
    """A number as Avro writes it: zigzag, seven bits a byte."""
    n = n * 2 if n >= 0 else -n * 2 - 1
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])
