"""One Kafka node, broker and controller in one: its settings, its folder, its command line."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from stream.config import Config
from stream.errors import StreamError, Unreachable
from stream.stack import jars, ports, process, wheels
from stream.stack.process import Identity
from stream.stack.state import KAFKA_FOLDER, State

PORT = 9092
NODE_ID = 1

# What the broker is told beside addresses and folders; a test compares it with docker-compose.yml.
SETTINGS: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A killed worker's keys go on elsewhere within ten seconds; a group may ask for less, to the minimum.
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
}
# For one small node. A killed broker cannot start again before its session has ended: six seconds, not nine. With one
# second, a machine too busy for its heartbeats took all partitions' leader away for half a minute. The cleaner's buffer
# takes 128 MB of heap otherwise.
SMALL: Mapping[str, str] = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "num.network.threads": "2",
    "num.io.threads": "4",
}
JVM = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss,SSS} %p %c{1}: %m%n
"""


class Kafka:
    """The broker of one stack."""

    name = "Kafka"
    stop_signal = signal.SIGTERM
    stop_timeout_s = 30.0

    def __init__(self, data: Path, state: State, progress: Callable[[str], None]) -> None:
        self._data, self._state, self._progress = data, state, progress
        self._folder = data / KAFKA_FOLDER
        self._properties = self._folder / "server.properties"
        self.log = data / "kafka.log"
        # Not the path of server.properties: Java is given relative names, whatever the project's path holds.
        self.identity = Identity("java", f"-Dstream.stack={self._folder}")

    @property
    def address(self) -> str:
        return f"{ports.HOST}:{self._state.kafka_port}"

    def choose_ports(self) -> None:
        """Keep the ports of the last time where they are free."""
        state = self._state
        wanted = state.kafka_port or PORT
        state.kafka_port = ports.choose(state.kafka_port, PORT)
        state.controller_port = ports.choose(state.controller_port, taken=[state.kafka_port])
        if state.kafka_port != wanted:
            self._progress(f"port {wanted} is taken by another program: Kafka gets {state.kafka_port}")

    def spawn(self) -> int:
        """Write the configuration and start the broker; returns its pid at once."""
        class_path = jars.ensure(self._progress)
        self._folder.mkdir(exist_ok=True)
        (self._folder / "tmp").mkdir(exist_ok=True)
        (self._folder / "log4j2.properties").write_text(LOGGING, encoding="utf-8")
        _write_properties(self._properties, self._settings())
        self._format(class_path)
        return process.spawn(
            [
                str(wheels.java()),
                *JVM,
                self.identity.argument,
                "-Djava.io.tmpdir=tmp",
                "-Dlog4j2.configurationFile=log4j2.properties",
                "kafka.Kafka",
                "server.properties",
            ],
            log=self.log,
            cwd=self._folder,
            variables=_variables(class_path),
        )

    def answers(self) -> bool:
        """Whether the broker works and is this one: another could sit on the port."""
        from stream.kafka.admin import cluster_id

        port = self._state.kafka_port
        if port is None or not ports.answers(port):
            return False
        try:
            return cluster_id(self._config(), timeout_s=5.0) == self._cluster_id()
        except Unreachable:
            return False

    def warm_up(self) -> None:
        """Have the topic of committed offsets made now, or the first group of all waits seconds for it."""
        from stream.kafka.admin import create_offsets_topic

        create_offsets_topic(self._config())

    def _config(self) -> Config:
        return Config(project=self._data, bootstrap_servers=self.address, database_url="")

    def _settings(self) -> dict[str, str]:
        controller = f"{ports.HOST}:{self._state.controller_port}"
        return {
            "node.id": str(NODE_ID),
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"{NODE_ID}@{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": "data",
            **SETTINGS,
            **SMALL,
        }

    def _format(self, class_path: list[Path]) -> None:
        """Give a new node its identity, as Kafka's own tool does, without a start of Java for each."""
        folder = self._folder / "data"
        meta = folder / "meta.properties"
        if meta.exists():
            return
        template = bootstrap_checkpoint(wheels.java(), class_path)
        folder.mkdir(exist_ok=True)
        shutil.copyfile(template, folder / template.name)
        _write_properties(
            meta,
            {"version": "1", "cluster.id": _kafka_id(), "node.id": str(NODE_ID), "directory.id": _kafka_id()},
        )

    def _cluster_id(self) -> str | None:
        try:
            lines = (self._folder / "data" / "meta.properties").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), None)


def bootstrap_checkpoint(java: Path, class_path: list[Path]) -> Path:
    """The file that tells a new node its feature levels: made once a version by Kafka's own tool, and kept.

    A node without it starts, and then refuses consumers of the new group protocol.
    """
    kept = jars.cache_folder() / "bootstrap.checkpoint"
    if kept.exists():
        return kept
    with tempfile.TemporaryDirectory(prefix="format-", dir=kept.parent) as scratch:
        settings = {
            "node.id": str(NODE_ID),
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"{NODE_ID}@{ports.HOST}:{PORT + 1}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{ports.HOST}:{PORT},CONTROLLER://{ports.HOST}:{PORT + 1}",
            "log.dirs": "data",
        }
        properties = Path(scratch) / "server.properties"
        _write_properties(properties, settings)
        result = subprocess.run(
            [
                str(java),
                *JVM,
                "kafka.tools.StorageTool",
                *("format", "-t", _kafka_id(), "-c", properties.name),
            ],
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**process.environment(), **_variables(class_path)},
        )
        made = Path(scratch) / "data" / kept.name
        if not made.exists():
            reason = process.last_of((result.stderr or result.stdout).splitlines())
            raise StreamError(f"Kafka's format tool failed with exit code {result.returncode}: {reason}")
        made.replace(kept)
    return kept


def _variables(class_path: list[Path]) -> dict[str, str]:
    """Java's class path, not as an option so that the command line can be read; names of any language."""
    return {"CLASSPATH": os.pathsep.join(map(str, class_path)), "LC_ALL": "C.UTF-8"}


def _kafka_id() -> str:
    """A random id as Kafka writes them; one that starts with a dash would be taken for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _write_properties(path: Path, settings: Mapping[str, str]) -> None:
    lines = [f"{name}={value}\n" for name, value in settings.items()]
    temporary = path.with_name(path.name + ".new")
    temporary.write_text("".join(lines), encoding="utf-8")
    temporary.replace(path)
