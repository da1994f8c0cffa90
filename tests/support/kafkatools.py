"""Kafka's own consumer-group tool, of the same version as the broker: the judge of what a rewind computes."""

from __future__ import annotations

import os
import subprocess

from stream.config import Config
from stream.stack import jars, wheels
from stream.stack.jars import Jar

TOOLS = Jar(
    "org.apache.kafka",
    "kafka-tools",
    jars.KAFKA_VERSION,
    "62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c",
)
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
Offsets = dict[tuple[str, int], int]


def reset_offsets(config: Config, group: str, *options: str) -> tuple[Offsets, str]:
    """What `kafka-consumer-groups --reset-offsets` plans, or does, by its export, and what it says beside it.

    No offsets where it refuses.
    """
    class_path = os.pathsep.join(map(str, jars.ensure(print, [TOOLS, *jars.pinned()])))
    command = [
        str(wheels.java()), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp", class_path, TOOL,
        "--bootstrap-server", config.bootstrap_servers, "--group", config.prefix + group,
        "--reset-offsets", "--export", *options,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    offsets: Offsets = {}
    said = []
    for line in done.stdout.splitlines():
        cells = line.strip().strip('"').split(",")
        if len(cells) == 3 and cells[1].isdecimal() and cells[2].isdecimal():
            offsets[cells[0].removeprefix(config.prefix), int(cells[1])] = int(cells[2])
        else:
            said.append(line)
    return offsets, "\n".join([*said, done.stderr])
