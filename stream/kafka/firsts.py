"""Firsts: of each partition one record, the first from an offset on. It commits nothing and disturbs nobody."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from stream.config import Config
from stream.kafka.settings import looking_settings
from stream.offsets import Partition


def looker(config: Config, name: str) -> Consumer:
    """A client that belongs to no group, and fetches little."""
    return Consumer(looking_settings(config, name) | {"queued.min.messages": 1, "fetch.wait.max.ms": 50})


def first_messages(
    config: Config, consumer: Consumer, offsets: Mapping[Partition, int], deadline: float
) -> dict[Partition, Message | None]:
    """The first message at each of these offsets or behind it, None where there is none but marks of transactions;
    without the partitions that do not answer until `deadline` (monotonic)."""
    waiting = set(offsets)
    found: dict[Partition, Message | None] = {}
    consumer.assign([TopicPartition(config.prefix + t, n, offset) for (t, n), offset in offsets.items()])
    while waiting and (left := deadline - time.monotonic()) > 0:
        message = consumer.poll(left)
        if message is None:
            continue
        partition = ((message.topic() or "").removeprefix(config.prefix), message.partition() or 0)
        error = message.error()
        if partition not in waiting or (error is not None and error.code() != KafkaError._PARTITION_EOF):
            continue
        waiting.discard(partition)
        consumer.pause([TopicPartition(config.prefix + partition[0], partition[1])])  # one of each is enough
        found[partition] = None if error is not None else message
    consumer.unassign()
    return found
