"""Lag: how far a group is behind, in records and in time. It joins nothing, commits nothing and disturbs nobody."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from stream.config import Config
from stream.kafka.admin import REACH_TIMEOUT_S, admin, unreachable
from stream.kafka.reader import committed
from stream.kafka.settings import client_settings
from stream.offsets import Partition

# What is said of one partition, by a broker that answers.
_LEADERLESS = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
PATIENCE_S = 4.0  # for the records whose ages are asked for, of all groups together


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group: its committed offset, the end, and how far the first is behind the second.

    `lag` counts what is still in the log. `lag_seconds`: the age of the next record. Both are None where the group has
    committed nothing in this topic; the latter also where the record did not come in time.
    """

    committed: int | None
    end: int
    lag: int | None = None
    lag_seconds: float | None = None


def lags(config: Config, groups: Mapping[str, Collection[str]]) -> dict[str, dict[Partition, PartitionLag]]:
    """Of each group, given with its topics, all partitions in order. A topic that is not there has none.

    Raises Unreachable where no broker answers.
    """
    client = admin(config)
    consumer = _looking(config)
    deadline = time.monotonic() + PATIENCE_S
    try:
        # The committed offsets first: the ends, read after them, are never below.
        offsets = {group: committed(config, group, client) for group in groups}
        bounds = _bounds(config, client, consumer, {topic for topics in groups.values() for topic in topics})
        found = {}
        for group, topics in groups.items():
            of_group = {
                partition: behind(partition, offsets[group], low, end)
                for partition, (low, end) in bounds.items()
                if partition[0] in topics
            }
            nexts = {p: max(one.committed or 0, bounds[p][0]) for p, one in of_group.items() if one.lag}
            ages = _ages(config, consumer, nexts, deadline)
            found[group] = {
                partition: replace(one, lag_seconds=0.0 if one.lag == 0 else ages.get(partition))
                for partition, one in of_group.items()
            }
        return found
    except KafkaException as error:
        raise unreachable(config, error) from None
    finally:
        consumer.close()


def lags_behind(config: Config, offsets: Mapping[Partition, int]) -> dict[Partition, PartitionLag]:
    """How far each of these offsets is behind its partition's end, as `lags` has it; the group is not asked.

    Without the partitions that nobody leads now. Raises Unreachable where no broker answers.
    """
    consumer = _looking(config)
    try:
        found, nexts = {}, {}
        for partition, offset in offsets.items():
            asked = TopicPartition(config.prefix + partition[0], partition[1])
            try:
                low, end = consumer.get_watermark_offsets(asked, timeout=REACH_TIMEOUT_S, cached=False)
            except KafkaException as error:
                if error.args[0].code() in _LEADERLESS:
                    continue
                raise
            found[partition] = behind(partition, offsets, low, end)
            if found[partition].lag:
                nexts[partition] = max(offset, low)
        ages = _ages(config, consumer, nexts, time.monotonic() + PATIENCE_S)
        return {
            partition: replace(one, lag_seconds=0.0 if one.lag == 0 else ages.get(partition))
            for partition, one in found.items()
        }
    except KafkaException as error:
        raise unreachable(config, error) from None
    finally:
        consumer.close()


def behind(partition: Partition, offsets: Mapping[Partition, int], low: int, end: int) -> PartitionLag:
    """A partition's lag without its age, by the group's committed offsets. Pure.

    What retention took is not counted: nobody can read it any more. A partition without an offset in a topic that has
    some is new: the group begins at its first record.
    """
    offset = offsets.get(partition)
    if offset is None and not any(topic == partition[0] for topic, _ in offsets):
        return PartitionLag(None, end)
    return PartitionLag(offset, end, max(0, end - max(offset or 0, low)))


def _looking(config: Config) -> Consumer:
    """A client that belongs to no group, and fetches little."""
    return Consumer(
        client_settings(config, "stream-lag")
        | {
            "group.id": config.prefix + "stream-lag",  # asked for, and never used
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # retention may take the record meanwhile
            "queued.min.messages": 1,
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 10,  # a full queue is empty again soon: do not wait a second
        }
    )


def _bounds(
    config: Config, client: AdminClient, consumer: Consumer, topics: Collection[str]
) -> dict[Partition, tuple[int, int]]:
    """First offset and end of every partition of these topics, in order."""
    known = client.list_topics(timeout=REACH_TIMEOUT_S).topics
    found = {}
    for topic in sorted(topics):
        there = known.get(config.prefix + topic)
        for number in sorted(there.partitions) if there is not None and there.error is None else ():
            asked = TopicPartition(config.prefix + topic, number)
            low, high = consumer.get_watermark_offsets(asked, timeout=REACH_TIMEOUT_S, cached=False)
            found[topic, number] = (low, high)
    return found


def _ages(
    config: Config, consumer: Consumer, nexts: Mapping[Partition, int], deadline: float
) -> dict[Partition, float]:
    """The ages of the records at these offsets; where no record is left, but marks of transactions, it is 0."""
    waiting = set(nexts)
    ages: dict[Partition, float] = {}
    consumer.assign([TopicPartition(config.prefix + t, n, offset) for (t, n), offset in nexts.items()])
    while waiting and (left := deadline - time.monotonic()) > 0:
        message = consumer.poll(left)
        if message is None:
            break
        partition = ((message.topic() or "").removeprefix(config.prefix), message.partition() or 0)
        error = message.error()
        if partition not in waiting or (error is not None and error.code() != KafkaError._PARTITION_EOF):
            continue
        waiting.discard(partition)
        consumer.pause([TopicPartition(config.prefix + partition[0], partition[1])])  # one of each is enough
        ages[partition] = 0.0 if error is not None else max(0.0, time.time() - message.timestamp()[1] / 1000)
    consumer.unassign()
    return ages
