"""Survey: what the doctor asks of a cluster. It joins nothing, commits nothing and disturbs nobody."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from stream.config import Config
from stream.errors import Unreachable
from stream.kafka.admin import REACH_TIMEOUT_S, admin, shortage_of, unreachable
from stream.kafka.oldest import oldest_records
from stream.offsets import Partition

REQUEST_TIMEOUT_S = 3.0
OF_A_TOPIC = frozenset({"DESCRIBE", "READ", "WRITE"})
OF_A_GROUP = frozenset({"DESCRIBE", "READ"})
_DENIED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})


@dataclass(frozen=True, slots=True)
class SurveyedTopic:
    """`settings`: empty where they may not be read. `shortage`: why nothing can be written to it now."""

    partitions: int
    id: str
    settings: Mapping[str, str]
    shortage: str | None


@dataclass(frozen=True, slots=True)
class Survey:
    """The cluster as one look found it, with logical names.

    `denied`: "topic orders" or "group email" -> the operations that this client may not do and has to. `oldest`: the
    times of the first records, None where they did not come in time. `newest_age_s`: of the youngest record whose time
    is the broker's, by this machine's clock; below 0 it comes from the future.
    """

    cluster_id: str
    brokers: int
    topics: Mapping[str, SurveyedTopic] = field(default_factory=dict)
    denied: Mapping[str, frozenset[str]] = field(default_factory=dict)
    oldest: Mapping[Partition, datetime | None] | None = None
    newest_age_s: float | None = None


def survey(config: Config, topics: Collection[str], groups: Collection[str]) -> Survey:
    """Look at these topics and groups, as far as they are there. Raises Unreachable within about ten seconds."""
    client = admin(config)
    try:
        cluster = client.list_topics(timeout=REACH_TIMEOUT_S)
        asked = _Asked(config, client, topics, groups)
        denied: dict[str, frozenset[str]] = {}
        found = {topic: one for topic in topics if (one := asked.topic(topic, denied)) is not None}
        for group in groups:
            asked.group(group, denied)
        newest = _newest_age(config, client, found)
    except KafkaException as error:
        raise unreachable(config, error) from None
    except TimeoutError:
        raise Unreachable(
            f"Kafka at {config.bootstrap_servers} does not answer in time", hint="stream stack status"
        ) from None
    readable = [topic for topic in found if "READ" not in denied.get(f"topic {topic}", ())]
    return Survey(
        str(cluster.cluster_id), len(cluster.brokers), found, denied, _oldest(config, readable), newest
    )


class _Asked:
    """The answers under way, all at once."""

    def __init__(
        self, config: Config, client: AdminClient, topics: Collection[str], groups: Collection[str]
    ) -> None:
        self._prefix = config.prefix
        self._deadline = time.monotonic() + REQUEST_TIMEOUT_S
        names = [config.prefix + topic for topic in topics]
        self._topics: dict[str, Future[Any]] = {}
        self._settings: dict[str, Future[Any]] = {}
        self._groups: dict[str, Future[Any]] = {}
        options = {"request_timeout": REQUEST_TIMEOUT_S}
        if names:
            self._topics = client.describe_topics(
                TopicCollection(names), include_authorized_operations=True, **options
            )
            resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}
            settings = client.describe_configs(list(resources.values()), **options)
            self._settings = {name: settings[resource] for name, resource in resources.items()}
        if groups:
            self._groups = client.describe_consumer_groups(
                [config.prefix + group for group in groups], include_authorized_operations=True, **options
            )

    def topic(self, topic: str, denied: dict[str, frozenset[str]]) -> SurveyedTopic | None:
        """None where it is not there, or may not be seen."""
        name = self._prefix + topic
        try:
            description = self._answer(self._topics[name])
        except KafkaException as error:
            code = error.args[0].code()
            if code in _DENIED:
                denied[f"topic {topic}"] = OF_A_TOPIC
            elif code not in _MISSING:
                raise
            return None
        _note_denied(f"topic {topic}", OF_A_TOPIC, description.authorized_operations, denied)
        settings = {}
        try:
            entries = self._answer(self._settings[name])
            settings = {key: entry.value for key, entry in entries.items() if entry.value is not None}
        except KafkaException as error:
            if error.args[0].code() not in _DENIED | _MISSING:
                raise
        min_insync = int(settings.get("min.insync.replicas", 1))
        return SurveyedTopic(
            len(description.partitions),
            str(description.topic_id),
            settings,
            shortage_of(description, min_insync),
        )

    def group(self, group: str, denied: dict[str, frozenset[str]]) -> None:
        """A cluster that has never had a group knows nothing of this one's rights."""
        try:
            description = self._answer(self._groups[self._prefix + group])
        except KafkaException as error:
            if error.args[0].code() in _DENIED:
                denied[f"group {group}"] = OF_A_GROUP
            return
        _note_denied(f"group {group}", OF_A_GROUP, description.authorized_operations, denied)

    def _answer(self, future: Future[Any]) -> Any:
        return future.result(max(0.1, self._deadline + 1.0 - time.monotonic()))


def _note_denied(name: str, needed: frozenset[str], allowed: Any, denied: dict[str, frozenset[str]]) -> None:
    """`allowed`: as the client has it; None where the broker does not tell."""
    if allowed is not None:
        missing = needed - {operation.name for operation in allowed}
        if missing:
            denied[name] = missing


def _newest_age(config: Config, client: AdminClient, topics: Mapping[str, SurveyedTopic]) -> float | None:
    """The age of the youngest record, in seconds."""
    asked = {
        TopicPartition(config.prefix + name, number): OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
        for name, topic in topics.items()
        if topic.shortage is None and topic.settings.get("message.timestamp.type") == "LogAppendTime"
        for number in range(topic.partitions)
    }
    times = []
    for future in client.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S).values() if asked else ():
        try:
            times.append(future.result(REQUEST_TIMEOUT_S + 1.0).timestamp)
        except (KafkaException, TimeoutError):
            continue  # one partition that does not answer is another check's
    found = [stamp for stamp in times if stamp is not None and stamp >= 0]
    return time.time() - max(found) / 1000 if found else None


def _oldest(config: Config, topics: Collection[str]) -> Mapping[Partition, datetime | None] | None:
    try:
        return oldest_records(config, topics, patience_s=REQUEST_TIMEOUT_S)
    except Unreachable:
        return None
