"""Membership: who is in a consumer group, as the broker says."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from stream.config import Config
from stream.kafka.admin import REACH_TIMEOUT_S, admin, unreachable


@dataclass(frozen=True, slots=True)
class BrokerMember:
    """`client`: the name it gave itself, without the prefix."""

    client: str
    host: str
    id: str

    def __str__(self) -> str:
        return f"{self.client!r:.100} at {self.host!r:.60}"


def members(config: Config, group: str) -> list[BrokerMember]:
    """The group's members; none where there is no such group. Raises Unreachable."""
    name = config.prefix + group
    client = admin(config)
    try:
        found = client.describe_consumer_groups([name], request_timeout=REACH_TIMEOUT_S)[name].result(20)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return []
        raise unreachable(config, error) from None
    return [
        BrokerMember(member.client_id.removeprefix(config.prefix), member.host, member.member_id)
        for member in found.members
    ]
