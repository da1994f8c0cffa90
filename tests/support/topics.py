"""Reading a topic as an independent reader: every record, by assignment, with no group."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from stream.config import Config
from tests.support.waiting import until


def read_all(config: Config, topic: str, *, isolation: str = "read_uncommitted") -> list[Message]:
    """Every record of the topic up to its ends at the start of the call, each partition's in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": config.bootstrap_servers,
            "group.id": f"reader-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
        }
    )
    try:
        name = config.prefix + topic
        partitions = list(consumer.list_topics(name, timeout=10).topics[name].partitions)
        ends = {p: _bounds(consumer, TopicPartition(name, p)) for p in partitions}
        left = {p for p, (low, high) in ends.items() if high > low}
        consumer.assign([TopicPartition(name, p, ends[p][0]) for p in left])
        records: list[Message] = []
        deadline = time.monotonic() + 60
        while left:
            assert time.monotonic() < deadline, f"{name}: partitions {left} not read to their ends in 60 s"
            for message in consumer.consume(1000, 0.2):
                if message.error():
                    raise KafkaException(message.error())
                records.append(message)
                if (message.offset() or 0) + 1 >= ends[message.partition() or 0][1]:
                    left.discard(message.partition() or 0)
        return records
    finally:
        consumer.close()


def _bounds(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """First offset and end; a partition just created has no leader yet."""
    deadline = time.monotonic() + 10
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=10)
            return low, high
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def create_topic(config: Config, topic: str, partitions: int = 1, **settings: str) -> None:
    """A topic made past the catalog, as an operator or another tool would; wait until the broker lists it."""
    admin = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    new = NewTopic(
        config.prefix + topic, num_partitions=partitions, replication_factor=1, config=dict(settings)
    )
    for future in admin.create_topics([new]).values():
        try:
            future.result(20)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    until(lambda: config.prefix + topic in admin.list_topics(timeout=10).topics, 20, f"{topic} is there")


def delete_topic(config: Config, topic: str) -> None:
    """Delete it, and wait until the broker has: only then can it be made again."""
    admin = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    name = config.prefix + topic
    admin.delete_topics([name])[name].result(20)
    until(lambda: name not in admin.list_topics(timeout=10).topics, 20, f"{name} is gone")


def set_limit(config: Config, topic: str, max_message_bytes: int) -> None:
    """Change what the broker takes as one batch of the topic; wait until the broker says so too."""
    entry = ConfigEntry(
        "max.message.bytes", str(max_message_bytes), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, config.prefix + topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(10)
    said = ConfigResource(ResourceType.TOPIC, config.prefix + topic)
    until(
        lambda: (
            admin.describe_configs([said])[said].result(10)["max.message.bytes"].value
            == str(max_message_bytes)
        )
    )


def ordered_producer(config: Config) -> Producer:
    """Keys go where the relay's go, and records stand in the topic as they were given: without idempotence, what a new
    topic's leader refuses at first comes behind."""
    return Producer(
        {
            "bootstrap.servers": config.bootstrap_servers,
            "partitioner": "murmur2_random",
            "linger.ms": 0,
            "enable.idempotence": True,
        }
    )


def produce_raw(
    config: Config, topic: str, records: Iterable[tuple[bytes | None, bytes | None, Any]]
) -> None:
    """Records as another producer would write them: (key, value, headers)."""
    producer = ordered_producer(config)
    failed: list[KafkaError] = []
    for key, value, headers in records:
        producer.produce(
            config.prefix + topic,
            value,
            key,
            headers=headers,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    producer.flush(30)
    assert not failed, failed
