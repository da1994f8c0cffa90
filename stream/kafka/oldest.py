"""Oldest: when the first record that is still in each log was written. It commits nothing and disturbs nobody."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import UTC, datetime

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from stream.config import Config
from stream.errors import Unreachable
from stream.kafka.admin import partition_counts, unreachable
from stream.kafka.settings import client_settings
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
    waiting = {(topic, number) for topic in topics for number in range(counts.get(topic, 0))}
    consumer = Consumer(
        client_settings(config, "stream-oldest")
        | {
            "group.id": config.prefix + "stream-oldest",  # asked for, and never used
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1,
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 10,  # a full queue is empty again soon: do not wait a second
        }
    )
    found: dict[Partition, datetime | None] = {}
    deadline = time.monotonic() + patience_s
    try:
        consumer.assign([TopicPartition(config.prefix + t, n, OFFSET_BEGINNING) for t, n in waiting])
        while waiting and (left := deadline - time.monotonic()) > 0:
            message = consumer.poll(left)
            if message is None:
                continue
            partition = ((message.topic() or "").removeprefix(config.prefix), message.partition() or 0)
            error = message.error()
            if partition not in waiting or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                continue
            waiting.discard(partition)
            consumer.pause([TopicPartition(config.prefix + partition[0], partition[1])])  # one is enough
            found[partition] = None if error is not None else _time(message)
    except KafkaException as error:
        raise unreachable(config, error) from None
    finally:
        consumer.close()
    if waiting:
        topic, number = min(waiting)
        raise Unreachable(
            f"Kafka at {config.bootstrap_servers}: the first record of {topic}[{number}] did not come in time",
            hint="stream doctor",
        )
    return found


def _time(message: Message) -> datetime:
    """A record without a time may be as old as can be."""
    return datetime.fromtimestamp(min(max(message.timestamp()[1], 0), 253402300799000) / 1000, UTC)
