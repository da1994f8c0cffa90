"""Oldest: when the first record that is still in each log was written. It commits nothing and disturbs nobody."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import UTC, datetime

from confluent_kafka import OFFSET_BEGINNING, KafkaException, Message

from stream.config import Config
from stream.errors import Unreachable
from stream.kafka.admin import partition_counts, unreachable
from stream.kafka.firsts import first_messages, looker
from stream.offsets import Partition

PATIENCE_S = 6.0


def oldest_records(
    config: Config, topics: Collection[str], *, patience_s: float = PATIENCE_S
) -> dict[Partition, datetime | None]:
    """When the first record of each partition of these topics was written; None where there is none.

    A topic that is not there has no partitions. Raises Unreachable where no broker answers, or where a partition does
    not within `patience_s`.
    """
    counts = partition_counts(config)
    beginnings = {
        (topic, number): OFFSET_BEGINNING for topic in topics for number in range(counts.get(topic, 0))
    }
    consumer = looker(config, "stream-oldest")
    try:
        found = first_messages(config, consumer, beginnings, time.monotonic() + patience_s)
    except KafkaException as error:
        raise unreachable(config, error) from None
    finally:
        consumer.close()
    waiting = beginnings.keys() - found.keys()
    if waiting:
        topic, number = min(waiting)
        raise Unreachable(
            f"Kafka at {config.bootstrap_servers}: the first record of {topic}[{number}] did not come in time",
            hint="stream doctor",
        )
    return {partition: None if message is None else _time(message) for partition, message in found.items()}


def _time(message: Message) -> datetime:
    """A record without a time may be as old as can be."""
    return datetime.fromtimestamp(min(max(message.timestamp()[1], 0), 253402300799000) / 1000, UTC)
