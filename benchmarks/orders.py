"""The events of every benchmark: OrderPlaced, about 500 bytes encoded, the same ones in every run."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random

import uuid_utils

from stream.demo.makebelieve import GOODS
from stream.project import Project

ROOT = Path(__file__).resolve().parents[1]
TOPIC = "orders"
TYPE = "OrderPlaced"
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
MOST_LINES = 16
POOL = 65_000  # different bodies; later events take the first ones again


@dataclass(frozen=True, slots=True)
class Placed:
    """Event number n: `time` is n milliseconds after FIRST, so that it names the event and shows the order."""

    key: bytes
    id: uuid.UUID
    time: datetime
    payload: bytes


class Orders:
    """Makes events of one project's own schema."""

    def __init__(self, project: Project) -> None:
        self._encode = project.codec.encode
        self._bodies: list[bytes] = []
        self._random = Random(7)

    def placed(self, count: int, *, keys: int | None = None, first: int = 0) -> list[Placed]:
        """Events number `first` to `first + count`, of as many keys; None: a key each."""
        while len(self._bodies) < min(first + count, POOL):
            self._bodies.append(self._encode(TYPE, body(len(self._bodies), self._random)))
        return [
            Placed(
                str(536365 + (n if keys is None else n % keys)).encode(),
                uuid.UUID(bytes=uuid_utils.uuid7().bytes),
                time_of(n),
                self._bodies[n % POOL],
            )
            for n in range(first, first + count)
        ]

    @property
    def mean_bytes(self) -> float:
        return sum(map(len, self._bodies)) / max(len(self._bodies), 1)


def body(n: int, random: Random) -> dict[str, object]:
    """The data of one order of 7 to 16 lines."""
    lines = [
        {"sku": sku, "description": text, "quantity": random.randint(1, 12), "unit_price": Decimal(price)}
        for sku, text, price in random.sample(GOODS, random.randint(7, MOST_LINES))
    ]
    return {
        "customer_id": str(random.randint(12000, 12400)),
        "currency": "GBP",
        "placed_at": time_of(n),
        "country": "United Kingdom",
        "lines": lines,
    }


def time_of(n: int) -> datetime:
    return FIRST + timedelta(milliseconds=n)
