"""Reader: every record of some topics, past the groups. It commits nothing and disturbs nobody."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from stream.config import Config
from stream.events import Record
from stream.kafka.admin import admin, partition_counts, unreachable
from stream.kafka.settings import client_settings

TIMEOUT_S = 8.0


class Reader:
    """Reads topics from their beginning. Owned by one thread; raises KafkaException where a partition fails."""

    def __init__(self, config: Config, topics: Iterable[str]) -> None:
        self._prefix = config.prefix
        settings = client_settings(config, "stream-reader")
        self._consumer = Consumer(
            settings
            | {
                "group.id": config.prefix + "stream-reader",  # asked for, and never used
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        counts = partition_counts(config)
        self._consumer.assign(
            [
                TopicPartition(config.prefix + topic, partition, 0)
                for topic in topics
                for partition in range(counts[topic])
            ]
        )

    def read(self, wait_s: float = 0.2, most: int = 2000) -> list[Record]:
        """What has come, each partition's in order."""
        records = []
        for message in self._consumer.consume(most, wait_s):
            error = message.error()
            if error is not None:
                if error.retriable():
                    continue
                raise KafkaException(error)
            topic, key, value = message.topic(), message.key(), message.value()
            records.append(
                Record(
                    topic=(topic or "").removeprefix(self._prefix),
                    partition=message.partition() or 0,
                    offset=message.offset() or 0,
                    key=key.encode() if isinstance(key, str) else key,
                    value=value.encode() if isinstance(value, str) else value,
                    headers=cast("list[tuple[str, bytes | None]]", message.headers() or []),
                    timestamp=message.timestamp()[1],
                )
            )
        return records

    def close(self) -> None:
        self._consumer.close()


def committed(config: Config, group: str, client: AdminClient | None = None) -> dict[tuple[str, int], int]:
    """(topic, partition) -> the group's committed offset; empty where it has committed nothing.

    `client`: the one to ask for the topics, if there is one. Raises Unreachable.
    """
    # Not AdminClient.list_consumer_group_offsets: where the coordinator answers NOT_COORDINATOR, it crashes the process
    # (librdkafka 2.16, issue 5315). This consumer never subscribes: it is no member, and disturbs none.
    consumer = Consumer(
        client_settings(config, "stream-offsets")
        | {"group.id": config.prefix + group, "enable.auto.commit": False}
    )
    try:
        topics = (client or consumer).list_topics(timeout=TIMEOUT_S).topics
        asked = [
            TopicPartition(name, partition)
            for name, topic in topics.items()
            if name.startswith(config.prefix) and topic.error is None
            for partition in topic.partitions
        ]
        found = consumer.committed(asked, timeout=TIMEOUT_S) if asked else []
        for partition in found:
            if partition.error is not None:
                raise KafkaException(partition.error)
    except KafkaException as error:
        raise unreachable(config, error) from None
    finally:
        consumer.close()
    return {
        (partition.topic.removeprefix(config.prefix), partition.partition): partition.offset
        for partition in found
        if partition.offset >= 0
    }


def delete_everything(config: Config, groups: Iterable[str]) -> None:
    """Delete all topics under this prefix, and these groups. Refuses an empty prefix: the cluster is not ours."""
    if not config.prefix:
        raise ValueError("a prefix is needed: without one, every topic of the cluster would be deleted")
    client = admin(config)
    topics = [config.prefix + topic for topic in partition_counts(config)]
    futures = (
        [
            *client.delete_topics(topics, operation_timeout=10).values(),
            *client.delete_consumer_groups([config.prefix + group for group in groups]).values(),
        ]
        if topics
        else []
    )
    for future in futures:
        future.exception(timeout=TIMEOUT_S)  # what cannot be deleted stays; nobody needs it
