"""A group's processor in a thread of the test, and records for it without outbox and relay."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from stream.config import Config
from stream.events import cloud_headers
from stream.groups import ConsumerGroup
from stream.processor import Processor
from stream.project import Project
from tests.support.topics import produce_raw
from tests.support.waiting import until


class Member:
    """One member of a group. `end` stops it; an error it ended with is raised there."""

    def __init__(self, group: ConsumerGroup, project: Project, config: Config, **options: Any) -> None:
        self.processor = Processor(group, project, config, **options)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.processor.run()
        except BaseException as error:  # noqa: BLE001  # raised in `end`
            self.error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float = 30) -> None:
        """Wait until it ends by itself; raises what it ended with."""
        until(lambda: not self.running, seconds, "the member's end")
        if self.error is not None:
            raise self.error

    def end(self, seconds: float = 30) -> None:
        self.processor.stop()
        self.wait(seconds)


def publish(
    config: Config,
    project: Project,
    events: Iterable[tuple[str | None, int]],
    *,
    type: str = "Happened",
    topic: str = "things",
) -> list[uuid.UUID]:
    """(key, n) events onto a topic, as the relay would; returns their ids."""
    ids, records = [], []
    for key, n in events:
        ids.append(uuid.uuid4())
        headers = cloud_headers(str(ids[-1]), type, datetime.now(UTC))
        value = project.codec.encode(type, {"n": n})
        records.append((None if key is None else key.encode(), value, headers))
    produce_raw(config, topic, records)
    return ids
