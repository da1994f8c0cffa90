"""Positions: what stands where in a topic, and at which offsets a group is; looked at past the groups, and moved.

Nothing here joins a group. Topic names are logical, the prefix is put before them here.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import cast

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from stream.config import Config
from stream.errors import CheckFailed, Refused, StreamError
from stream.events import Record
from stream.kafka.admin import REACH_TIMEOUT_S, admin, partition_counts, unreachable
from stream.kafka.firsts import first_messages, looker
from stream.kafka.settings import client_settings, looking_settings
from stream.offsets import Partition

AT_ONCE = 5000  # messages a call
WAIT_S = 0.2
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253402300799000  # of what a datetime holds

# The group is no longer empty, or is being changed: the broker lets nobody but its members commit.
_ACTIVE = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.NON_EMPTY_GROUP,
    }
)


def bounds(config: Config, topics: Collection[str]) -> dict[Partition, tuple[int, int]]:
    """First offset and end of every partition of these topics. Raises CheckFailed where one does not exist."""
    counts = partition_counts(config)
    for topic in sorted(topics):
        if topic not in counts:
            raise CheckFailed(f"topic {topic} does not exist", hint="stream migrate")
    partitions = [(topic, number) for topic in topics for number in range(counts[topic])]
    lows = _offsets(config, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    highs = _offsets(config, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    return {partition: (lows[partition], highs[partition]) for partition in partitions}


def offsets_at(
    config: Config, partitions: Collection[Partition], at: datetime
) -> dict[Partition, int | None]:
    """The first offset of each whose record is not older; None where all are."""
    milliseconds = max(0, (at - EPOCH) // timedelta(milliseconds=1))
    found = _offsets(config, partitions, OffsetSpec.for_timestamp(milliseconds))
    return {partition: offset if offset >= 0 else None for partition, offset in found.items()}


def _offsets(config: Config, partitions: Collection[Partition], spec: OffsetSpec) -> dict[Partition, int]:
    asked = {TopicPartition(config.prefix + topic, number): spec for topic, number in partitions}
    if not asked:
        return {}
    client = admin(config)
    try:
        futures = client.list_offsets(asked, request_timeout=REACH_TIMEOUT_S)
        return {
            (partition.topic.removeprefix(config.prefix), partition.partition): future.result(20).offset
            for partition, future in futures.items()
        }
    except KafkaException as error:
        raise unreachable(config, error) from None


def record_times(
    config: Config, offsets: Mapping[Partition, int], patience: float = 3.0
) -> dict[Partition, datetime]:
    """When the records at these offsets were written, or the next ones there are; without those that did not come
    within `patience` seconds."""
    consumer = looker(config, "stream-look")
    try:
        found = first_messages(config, consumer, offsets, time.monotonic() + patience)
    finally:
        consumer.close()
    stamps = {partition: message.timestamp() for partition, message in found.items() if message is not None}
    return {
        partition: datetime.fromtimestamp(min(max(stamp, 0), LAST_MS) / 1000, UTC)
        for partition, (kind, stamp) in stamps.items()
        if kind != TIMESTAMP_NOT_AVAILABLE
    }


def records_in(config: Config, ranges: Mapping[Partition, tuple[int, int]]) -> Iterator[list[Record]]:
    """The records of these ranges [from, to), without their values: some at a time, or none, a few times a second at
    least, until all ends are reached.

    Raises StreamError where a partition cannot be read.
    """
    left = {partition: end for partition, (start, end) in ranges.items() if start < end}
    consumer = Consumer(looking_settings(config, "stream-look"))
    try:
        consumer.assign(_physical(config, {partition: ranges[partition][0] for partition in left}))
        while left:
            records = []
            for message in consumer.consume(AT_ONCE, WAIT_S):
                partition = _partition(config, message)
                end = left.get(partition)
                if end is None:
                    continue  # behind the range's end
                offset = cast("int", message.offset())
                error = message.error()
                if error is None and offset < end:
                    records.append(_record(partition, message))
                elif error is not None and error.code() != KafkaError._PARTITION_EOF:
                    if error.retriable():
                        continue
                    raise StreamError(f"topic {partition[0]} cannot be read: {error.str()}")
                # An end of the log is behind the last record: what is left of the range are a transaction's marks.
                if error is not None or offset + 1 >= end:
                    del left[partition]
                    consumer.incremental_unassign(_physical(config, {partition: 0}))
            yield records
    finally:
        consumer.close()


def move_offsets(config: Config, group: str, offsets: Mapping[Partition, int]) -> None:
    """Commit these offsets for a group that has no members: the broker takes all of them or none.

    Raises Refused where the group has members: then nothing was changed. After any other error what the broker has is
    to be read.
    """
    # Not AdminClient.alter_consumer_group_offsets: it goes the way of the call that crashes the process (reader.py).
    consumer = Consumer(
        client_settings(config, "stream-rewind")
        | {"group.id": config.prefix + group, "enable.auto.commit": False}
    )
    try:
        results = consumer.commit(offsets=_physical(config, offsets), asynchronous=False) or []
    except KafkaException as error:
        if error.args[0].code() in _ACTIVE:
            raise Refused(
                f"group {group!r} got a member while its offsets were to be moved; nothing was changed",
                hint=f"stream groups describe {group}",
            ) from None
        raise unreachable(config, error) from None
    finally:
        consumer.close()
    for result in results:
        if result.error is not None:
            raise StreamError(
                f"the broker does not take offset {result.offset} of"
                f" {result.topic.removeprefix(config.prefix)}[{result.partition}]: {result.error.str()}"
            )


def _record(partition: Partition, message: Message) -> Record:
    try:
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    except UnicodeDecodeError:  # a header's name: no event of ours
        headers = []
    return Record(
        *partition, cast("int", message.offset()), message.key(), None, headers, message.timestamp()[1]
    )


def _physical(config: Config, offsets: Mapping[Partition, int]) -> list[TopicPartition]:
    return [
        TopicPartition(config.prefix + topic, number, offset) for (topic, number), offset in offsets.items()
    ]


def _partition(config: Config, message: Message) -> Partition:
    return (message.topic() or "").removeprefix(config.prefix), message.partition() or 0
