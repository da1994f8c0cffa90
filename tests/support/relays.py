"""What a spawned relay says of itself."""

from __future__ import annotations

import re

from tests.support.processes import Command
from tests.support.waiting import until


def owned_shards(relay: Command) -> int:
    """How many shards it owned when it last said so."""
    said = re.findall(r'"owned": (\d+)', relay.stderr)
    return int(said[-1]) if said else 0


def wait_owns_all(relay: Command, seconds: float = 20) -> None:
    """Until it owns every shard, by its last word: it may have owned them all before."""
    until(lambda: owned_shards(relay) == 64, seconds, lambda: f"it owns {owned_shards(relay)} shards")
