"""A second broker beside the stack's own: what only a cluster can show, such as a topic short of replicas."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from stream.config import Config
from stream.stack import jars, ports, wheels
from stream.stack.kafka import JVM
from tests.support.waiting import until

NODE_ID = 2


class SecondBroker:
    """Joins the cluster of the stack in `data`; `folder` is its own. `stop` it, whatever happens."""

    def __init__(self, data: Path, folder: Path, config: Config) -> None:
        own = data / "kafka"
        self._config = config
        settings = _read(own / "server.properties")
        port = ports.choose(None)
        settings |= {
            "node.id": str(NODE_ID),
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{ports.HOST}:{port}",
            "advertised.listeners": f"PLAINTEXT://{ports.HOST}:{port}",
            # A follower that hangs leaves the in-sync replicas after so long.
            "replica.lag.time.max.ms": "1500",
        }
        (folder / "data").mkdir(parents=True)
        _write(folder / "server.properties", settings)
        shutil.copy(own / "data" / "bootstrap.checkpoint", folder / "data")
        shutil.copy(own / "log4j2.properties", folder)
        meta = _read(own / "data" / "meta.properties")
        directory = urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        _write(
            folder / "data" / "meta.properties", meta | {"node.id": str(NODE_ID), "directory.id": directory}
        )
        class_path = os.pathsep.join(map(str, jars.ensure(lambda _: None)))
        with open(folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                [
                    wheels.java(),
                    *JVM,
                    "-Dlog4j2.configurationFile=log4j2.properties",
                    "kafka.Kafka",
                    "server.properties",
                ],
                cwd=folder,
                stdout=log,
                stderr=log,
                env={"PATH": os.defpath, "CLASSPATH": class_path, "LC_ALL": "C.UTF-8"},
            )
        until(self._joined, 30, lambda: (folder / "log").read_text())

    def create_topics(self, replicas: dict[str, list[list[int]]], *, min_insync: int) -> None:
        """Topics with the brokers of each partition; this one has number 2. The first of them leads."""
        new = [
            NewTopic(
                self._config.prefix + topic,
                num_partitions=len(assignment),
                replica_assignment=assignment,
                config={"min.insync.replicas": str(min_insync)},
            )
            for topic, assignment in replicas.items()
        ]
        admin = self._admin()
        for future in admin.create_topics(new).values():
            future.result(20)

    def in_sync(self, topic: str) -> int:
        """How many replicas of the topic are in sync."""
        name = self._config.prefix + topic
        return len(self._admin().list_topics(name, timeout=10).topics[name].partitions[0].isrs)

    def hang(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Kill it, and wait until the cluster has noticed: the other tests' topics must not come to it."""
        self._process.kill()
        self._process.wait()
        until(lambda: len(self._admin().list_topics(timeout=10).brokers) == 1, 30, "the broker is gone")

    def _joined(self) -> bool:
        assert self._process.poll() is None, "the second broker ended"
        return len(self._admin().list_topics(timeout=10).brokers) == 2

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._config.bootstrap_servers})


def _read(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _write(path: Path, settings: dict[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
