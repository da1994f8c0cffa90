"""Search: the records of one key, read past the groups. It commits nothing and disturbs nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

from stream.config import Config
from stream.events import Record
from stream.kafka.admin import partition_counts
from stream.kafka.scans import Scan, Scanner
from stream.keys import partition_of

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Found:
    """The key's records, each topic's in order; `missing` topics are not on the cluster."""

    records: Sequence[Record]
    scans: Sequence[Scan]
    missing: Sequence[str]


def records_of_key(
    config: Config,
    key: bytes,
    topics: Sequence[str],
    *,
    seconds: float,
    progress: Progress | None = None,
    stopping: Event | None = None,
) -> Found:
    """Read the key's partition of each topic up to the ends found at the start, for `seconds` at most, or until
    `stopping` is set.

    A topic whose partitions were grown has a key's older records in another partition: they are not found.
    `progress` gets the number of offsets passed, and of all. Raises Unreachable where no broker answers,
    StreamError where a topic cannot be read.
    """
    counts = partition_counts(config)
    there = [topic for topic in topics if topic in counts]
    with Scanner(config, "stream-search") as scanner:
        scans = [scanner.whole(topic, partition_of(key, counts[topic])) for topic in there]
        total = sum((scan.end or 0) - scan.first for scan in scans)
        deadline = time.monotonic() + seconds

        def tell() -> None:
            if progress is not None:
                progress(sum(scan.reached - scan.first for scan in scans), total)

        def go_on() -> bool:
            tell()
            return time.monotonic() < deadline and not (stopping is not None and stopping.is_set())

        records = list(scanner.read(scans, go_on, key=key))
        tell()
    return Found(records, scans, [topic for topic in topics if topic not in counts])
