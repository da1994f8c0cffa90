"""Topics as the cluster has them: reachable, present, created, described."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from stream.config import Config
from stream.errors import Refused, StreamError, Unreachable, UsageError
from stream.kafka.settings import client_settings
from stream.topics import Topic

REACH_TIMEOUT_S = 6.0
SLICE_S = 2.0
LOOKUP_EVERY_S = 1.0
DEFAULT_MAX_MESSAGE_BYTES = 1048588  # the broker's


def admin(config: Config) -> AdminClient:
    """A new admin client. Make one for each look: one that outlived a broker restart can abort the process.

    Keep it in a variable until its futures are done: they are never done once it is gone. Raises UsageError
    where the client cannot be made of the user's settings.
    """
    try:
        return AdminClient(client_settings(config, "stream-admin"))
    except KafkaException as error:
        raise UsageError(f"Kafka settings: {error.args[0].str()}") from None


def check_reachable(config: Config) -> None:
    """Raise Unreachable within ten seconds where no broker of `bootstrap_servers` answers.

    Asks in slices: a signal's handler does not run while the client waits.
    """
    client = admin(config)
    deadline = time.monotonic() + REACH_TIMEOUT_S
    while True:
        try:
            client.list_topics(timeout=SLICE_S)
            return
        except KafkaException as error:
            if time.monotonic() > deadline - SLICE_S / 2:
                raise unreachable(config, error) from None


def cluster_id(config: Config, *, timeout_s: float = REACH_TIMEOUT_S) -> str:
    """The id of the cluster that answers; raises Unreachable."""
    try:
        return str(admin(config).list_topics(timeout=timeout_s).cluster_id)
    except KafkaException as error:
        raise unreachable(config, error) from None


def create_offsets_topic(config: Config) -> None:
    """Have the cluster make its topic of committed offsets now: the first group of all would wait for it.

    Asking about any group is enough; the answer is "coordinator not available" until the topic is there.
    """
    deadline = time.monotonic() + 15
    while True:
        client = admin(config)
        try:
            client.describe_consumer_groups(["stream"], request_timeout=REACH_TIMEOUT_S)["stream"].result(20)
            return
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return
            if time.monotonic() > deadline:
                raise unreachable(config, error) from None
        time.sleep(0.05)


def unreachable(config: Config, error: KafkaException) -> Unreachable:
    return Unreachable(
        f"Kafka at {config.bootstrap_servers} does not answer: {error.args[0].str()}",
        hint="stream stack status   (or check KAFKA_BOOTSTRAP_SERVERS)",
    )


def partition_counts(config: Config) -> dict[str, int]:
    """Logical topic name -> number of partitions, for the topics under this prefix."""
    try:
        found = admin(config).list_topics(timeout=REACH_TIMEOUT_S).topics
    except KafkaException as error:
        raise unreachable(config, error) from None
    return {
        name.removeprefix(config.prefix): len(topic.partitions)
        for name, topic in found.items()
        if name.startswith(config.prefix) and topic.error is None
    }


def create_topics(config: Config, topics: Iterable[Topic]) -> None:
    """Create the topics, and wait until the brokers list them: they hear of them a little later than the controller.

    One that is there already is left as it is. Raises StreamError where the broker refuses one.
    """
    wanted = {topic.name: topic for topic in topics}
    new = [
        NewTopic(
            config.prefix + topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication or -1,
            config=topic_config(topic),
        )
        for topic in wanted.values()
    ]
    if not new:
        return
    client = admin(config)
    for name, future in client.create_topics(new, operation_timeout=15).items():
        try:
            future.result(timeout=20)
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise StreamError(
                    f"topic {name} cannot be created: {reason.str()}", hint="stream doctor"
                ) from None
    deadline = time.monotonic() + 15
    while not wanted.keys() <= partition_counts(config).keys() and time.monotonic() < deadline:
        time.sleep(0.05)


def grow_topic(config: Config, topic: str, partitions: int) -> None:
    """Give the topic so many partitions in all, and wait until the brokers list them.

    Raises Refused with the broker's reason where it says no.
    """
    client = admin(config)
    name = config.prefix + topic
    try:
        client.create_partitions([NewPartitions(name, partitions)], operation_timeout=15)[name].result(20)
    except KafkaException as error:
        raise Refused(f"Kafka does not grow {topic}: {error.args[0].str()}") from None
    deadline = time.monotonic() + 15
    while partition_counts(config).get(topic, 0) < partitions and time.monotonic() < deadline:
        time.sleep(0.05)


def topic_config(topic: Topic) -> dict[str, str]:
    """The broker's settings of a topic of ours. The broker stamps the time: an old one would fall to retention."""
    said = {
        "retention.ms": topic.retention_ms,
        "min.insync.replicas": topic.min_insync,
        "cleanup.policy": topic.cleanup,
    }
    given = {name: str(value) for name, value in said.items() if value is not None}
    return {"message.timestamp.type": "LogAppendTime", **given, **topic.config}


@dataclass(frozen=True)
class TopicState:
    """What the relay asks of a topic: its size limit, why it cannot be used, why nothing can be written now."""

    max_message_bytes: int
    problem: str | None = None
    shortage: str | None = None


class TopicWatch:
    """Asks the broker about one topic, at most once a second. Never blocks."""

    def __init__(self, config: Config, topic: str) -> None:
        self._config, self._topic = config, topic
        self._lookup: _TopicLookup | None = None
        self._next = 0.0

    def look(self) -> TopicState | None:
        """A new answer; None while there is none."""
        now = time.monotonic()
        if self._lookup is None:
            if now < self._next:
                return None
            self._lookup = _TopicLookup(self._config, self._topic)
        state = self._lookup.result()
        if state is not None:
            self._lookup, self._next = None, now + LOOKUP_EVERY_S
        return state


class _TopicLookup:
    """An answer under way."""

    def __init__(self, config: Config, topic: str) -> None:
        client = admin(config)
        name = config.prefix + topic
        self._client = client  # the futures need it alive
        self._described: Future[TopicDescription] = client.describe_topics(
            TopicCollection([name]), request_timeout=5
        )[name]
        resource = ConfigResource(ResourceType.TOPIC, name)
        self._configs: Future[Mapping[str, ConfigEntry]] = client.describe_configs(
            [resource], request_timeout=5
        )[resource]

    def result(self) -> TopicState | None:
        """None while the answer is under way."""
        if not (self._described.done() and self._configs.done()):
            return None
        try:
            description = self._described.result()
        except KafkaException as error:
            reason = error.args[0]
            missing = reason.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
            return TopicState(0, "the topic does not exist" if missing else reason.str())
        try:
            configs = self._configs.result()
        except KafkaException:
            return TopicState(DEFAULT_MAX_MESSAGE_BYTES)  # who may not read settings may still write records
        limit = int(configs["max.message.bytes"].value or DEFAULT_MAX_MESSAGE_BYTES)
        return TopicState(
            limit, shortage=shortage_of(description, int(configs["min.insync.replicas"].value or 1))
        )


def shortage_of(topic: TopicDescription, min_insync: int) -> str | None:
    """Why nothing can be written to the topic now."""
    for partition in topic.partitions:
        if partition.leader is None or partition.leader.id < 0:
            return f"partition {partition.id} has no leader"
        needed = min(min_insync, len(partition.replicas))
        if len(partition.isr) < needed:
            return (
                f"partition {partition.id} has too few in-sync replicas:"
                f" {len(partition.isr)} of the {needed} that min.insync.replicas asks for"
            )
    return None


def most_record_bytes(config: Config, topics: Iterable[str]) -> int:
    """The smallest of the topics' limits for a record; the broker's default for who may not read settings."""
    resources = [ConfigResource(ResourceType.TOPIC, config.prefix + topic) for topic in topics]
    client = admin(config)
    limits = [DEFAULT_MAX_MESSAGE_BYTES]
    for future in client.describe_configs(resources, request_timeout=REACH_TIMEOUT_S).values():
        try:
            limits.append(int(future.result(20)["max.message.bytes"].value or DEFAULT_MAX_MESSAGE_BYTES))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
    return min(limits[1:] or limits)


def topic_ids(config: Config, topics: Iterable[str]) -> dict[str, str]:
    """Logical topic name -> the cluster's id of it; a topic that does not exist is left out."""
    names = [config.prefix + topic for topic in topics]
    ids = {}
    client = admin(config)
    for name, future in client.describe_topics(
        TopicCollection(names), request_timeout=REACH_TIMEOUT_S
    ).items():
        try:
            ids[name.removeprefix(config.prefix)] = str(future.result(20).topic_id)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise unreachable(config, error) from None
    return ids


def set_group_config(config: Config, group: str, settings: Mapping[str, str]) -> str | None:
    """Set a consumer group's broker-side settings; returns the broker's reason where it refuses."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, config.prefix + group, incremental_configs=entries)
    client = admin(config)
    try:
        client.incremental_alter_configs([resource])[resource].result(timeout=REACH_TIMEOUT_S)
    except KafkaException as error:
        return str(error.args[0].str())
    return None
