"""A broker that lets a user do only what it was allowed: with access control lists, and names and passwords."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psutil
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from stream.config import Config
from stream.stack import ports, state
from stream.stack.kafka import Kafka
from stream.stack.state import State
from tests.support.waiting import until

USER, PASSWORD = "app", "only-for-this-test"


class _Kafka(Kafka):
    """The stack's broker with one more listener. Who comes by the first may do everything."""

    def __init__(self, data: Path, own: State) -> None:
        super().__init__(data, own, lambda _: None)
        self.guarded = f"{ports.HOST}:{ports.choose(None, taken=[own.kafka_port, own.controller_port])}"

    def _settings(self) -> dict[str, str]:
        settings = super()._settings()
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return settings | {
            "listeners": f"{settings['listeners']},GUARDED://{self.guarded}",
            "advertised.listeners": f"{settings['advertised.listeners']},GUARDED://{self.guarded}",
            "listener.security.protocol.map": settings["listener.security.protocol.map"]
            + ",GUARDED:SASL_PLAINTEXT",
            "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": f'{module} required user_{USER}="{PASSWORD}";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }


class GuardedBroker:
    """A broker of a test's own. `stop` it, whatever happens."""

    def __init__(self, data: Path) -> None:
        state.make_folder(data)
        own = State(kafka_port=ports.choose(None))
        own.controller_port = ports.choose(None, taken=[own.kafka_port])
        self._kafka = _Kafka(data, own)
        self._pid = self._kafka.spawn()
        until(self._kafka.answers, 60, lambda: self._kafka.log.read_text())

    def for_everything(self, config: Config) -> Config:
        """As who may do everything."""
        return replace(config, bootstrap_servers=self._kafka.address)

    def for_the_user(self, config: Config) -> Config:
        """As the user, who may do what `allow` said."""
        return replace(
            config,
            bootstrap_servers=self._kafka.guarded,
            kafka={
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            },
        )

    def allow(self, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        client = AdminClient({"bootstrap.servers": self._kafka.address})
        bindings = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.LITERAL,
                f"User:{USER}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        for future in client.create_acls(bindings).values():
            future.result(20)

    def stop(self) -> None:
        process = psutil.Process(self._pid)
        process.kill()
        process.wait(20)
