"""A member that leaves its group while the broker gives it partitions."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient

from stream.config import Config
from stream.kafka.consumer import GroupConsumer, KafkaException
from stream.kafka.membership import members
from stream.offsets import Partition
from tests.support.topics import create_topic
from tests.support.waiting import until


class Asking:
    """A listener that asks for offsets before it starts, as a group does."""

    def __init__(self, consumer: GroupConsumer) -> None:
        self._consumer = consumer
        self.asked: list[list[Partition]] = []
        self.unanswered = 0

    def assigned(self, partitions: list[Partition]) -> None:
        self.asked.append(partitions)
        try:
            self._consumer.committed(partitions)
        except KafkaException:
            self.unanswered += 1

    def revoked(self, partitions: list[Partition]) -> None:
        pass

    def lost(self, partitions: list[Partition]) -> None:
        pass

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        pass


def given(config: Config) -> int:
    """How many partitions the broker has given to members of the group."""
    client = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    name = config.prefix + "testers"
    found = client.describe_consumer_groups([name])[name].result(20)
    return sum(len(member.assignment.topic_partitions) for member in found.members)


def test_partitions_given_while_a_member_leaves_are_not_opened(config: Config) -> None:
    create_topic(config, "things", 2)
    consumer = GroupConsumer(config, "testers", "w", prefetch=1)
    listener = Asking(consumer)
    consumer.subscribe(["things"], listener)
    until(lambda: members(config, "testers") and given(config) == 2)
    consumer.close()  # nobody has called `fetch`: the client tells of them in here, and answers nothing any more
    assert (listener.asked, listener.unanswered) == ([], 0)
    assert not members(config, "testers")
