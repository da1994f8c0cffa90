"""Topics: which events a topic carries and how it is kept (schemas/topics.toml); retry and DLQ names. Pure.

Names here are logical; `kafka/` alone puts the prefix of a shared cluster before them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from stream.errors import SchemaError, UnknownEventType

NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
OURS = (".retry", ".dlq")  # ends of the topics that groups have to themselves
KEYS = ("events", "partitions", "retention", "replication", "min_insync", "cleanup", "config")
CLEANUPS = ("delete", "compact", "compact,delete")
# Settings with a key of their own, so that nothing is said twice.
NAMED_SETTINGS = {
    "retention.ms": "retention",
    "min.insync.replicas": "min_insync",
    "cleanup.policy": "cleanup",
}

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d{1,15})\s?(ms|s|m|h|d|w)", re.ASCII)
FOREVER = -1
_LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. None means: as the broker has it. `retention_ms` is in milliseconds, -1 is for ever."""

    name: str
    events: tuple[str, ...]
    partitions: int
    retention_ms: int | None = None
    replication: int | None = None
    min_insync: int | None = None
    cleanup: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)


class TopicCatalog:
    """The topics of a project."""

    def __init__(self, topics: Iterable[Topic], path: str = "topics.toml") -> None:
        self.topics: dict[str, Topic] = {topic.name: topic for topic in topics}
        self._topic_of: dict[str, str] = {}
        for topic in self.topics.values():
            for event in topic.events:
                if event in self._topic_of:
                    other = self._topic_of[event]
                    where = "twice" if other == topic.name else f"in {other} already; an event has one topic"
                    raise SchemaError(path, f"{topic.name}.events: {event} is {where}")
                self._topic_of[event] = topic.name
        self._path = path

    @classmethod
    def load(cls, path: Path, events: Iterable[str] | None = None) -> TopicCatalog:
        """Read topics.toml; with `events`, the types that have a schema, check that both agree.

        Raises SchemaError naming the file and the key.
        """
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise SchemaError(str(path), "no such file", hint="stream init DIR   (makes one)") from None
        except OSError as error:
            raise SchemaError(str(path), f"cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise SchemaError(str(path), f"is no TOML: {error}") from None
        return cls.parse(content, str(path), events)

    @classmethod
    def parse(
        cls, content: Mapping[str, Any], path: str = "topics.toml", events: Iterable[str] | None = None
    ) -> TopicCatalog:
        """The same from parsed content; `path` is for messages."""
        catalog = cls([_topic(path, name, table) for name, table in content.items()], path)
        if events is not None:
            catalog.check_events(events)
        return catalog

    def check_events(self, events: Iterable[str]) -> None:
        """Every event type with a schema has a topic, and the other way round; raises SchemaError."""
        known = set(events)
        for name, topic in self._topic_of.items():
            if name not in known:
                near = get_close_matches(name, known, 1)
                meant = f" (did you mean {near[0]}?)" if near else ""
                hint = f"stream schema new {name}"
                raise SchemaError(self._path, f"{topic}.events: {name} has no schema{meant}", hint=hint)
        homeless = sorted(known - self._topic_of.keys())
        if homeless:
            message = f"{', '.join(homeless)} in no topic; name it in the `events` of one"
            raise SchemaError(self._path, message)

    def topic_of(self, type: str) -> str:
        """The topic that carries an event type; raises UnknownEventType."""
        try:
            return self._topic_of[type]
        except KeyError:
            expected = f"an event type of {self._path}"
            raise UnknownEventType("type", expected, repr(type)[:60]) from None


def retry_topic(group: str) -> str:
    """Where a group's failed records wait for their next try."""
    return f"{group}.retry"


def dlq_topic(group: str) -> str:
    """Where a group's dead letters go."""
    return f"{group}.dlq"


def failing_topics(group: str, sources: Sequence[Topic]) -> list[Topic]:
    """A group's retry and DLQ topics, as wide and as safe as the topics it reads.

    A retry record is a call to look into the database, where the truth is: a week of them is plenty. Dead letters
    are in the database too, until they are pruned there; their topic is for other tools.
    """
    like = max(sources, key=lambda topic: topic.partitions)
    return [
        Topic(
            name,
            events=(),
            partitions=like.partitions,
            retention_ms=days * 86_400_000,
            replication=like.replication,
            min_insync=like.min_insync,
        )
        for name, days in ((retry_topic(group), 7), (dlq_topic(group), 90))
    ]


def duration_ms(value: object) -> int | None:
    """Milliseconds of `"365d"`, `"12h"`, or of a number of them (-1: for ever); None where it is neither."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value == FOREVER or 0 < value <= _LONG_MAX else None
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    found = int(match[1]) * _UNITS[match[2]]
    return found if 0 < found <= _LONG_MAX else None


def _topic(path: str, name: str, table: Any) -> Topic:
    if not NAME.fullmatch(name) or name in (".", "..") or name.startswith("__"):
        raise SchemaError(path, f"[{name[:60]}]: a topic name has 1 to 249 of a-z A-Z 0-9 . _ -")
    if name.endswith(OURS):
        raise SchemaError(path, f"[{name}]: names that end in .retry or .dlq belong to the groups")
    if not isinstance(table, dict):
        raise SchemaError(path, f"{name}: expected a table [{name}]")
    for key in table:
        if key not in KEYS:
            near = get_close_matches(key, KEYS, 1)
            meant = f"did you mean {near[0]}?" if near else f"known: {', '.join(KEYS)}"
            raise SchemaError(path, f"{name}.{key}: unknown key ({meant})")
    return Topic(
        name=name,
        events=_events(path, name, table.get("events")),
        partitions=_count(path, f"{name}.partitions", table.get("partitions"), 100_000),
        retention_ms=_retention(path, name, table.get("retention")),
        replication=_optional_count(path, f"{name}.replication", table.get("replication")),
        min_insync=_optional_count(path, f"{name}.min_insync", table.get("min_insync")),
        cleanup=_cleanup(path, name, table.get("cleanup")),
        config=_config(path, name, table.get("config", {})),
    )


def _events(path: str, name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(event, str) and event for event in value):
        raise SchemaError(path, f'{name}.events: expected a list of event types, such as ["OrderPlaced"]')
    return tuple(value)


def _count(path: str, where: str, value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        got = "nothing" if value is None else repr(value)[:60]
        raise SchemaError(path, f"{where}: expected a whole number from 1 to {most}, got {got}")
    return value


def _optional_count(path: str, where: str, value: Any) -> int | None:
    return None if value is None else _count(path, where, value, 1_000)


def _retention(path: str, name: str, value: Any) -> int | None:
    if value is None:
        return None
    found = duration_ms(value)
    if found is None:
        expected = 'expected a duration such as "365d", "12h" or a number of milliseconds (-1: for ever)'
        raise SchemaError(path, f"{name}.retention: {expected}, got {value!r:.60}")
    return found


def _cleanup(path: str, name: str, value: Any) -> str | None:
    if value is not None and value not in CLEANUPS:
        raise SchemaError(path, f"{name}.cleanup: expected one of {'; '.join(CLEANUPS)}, got {value!r:.60}")
    found: str | None = value
    return found


def _config(path: str, name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise SchemaError(path, f"{name}.config: expected a table [{name}.config]")
    settings = {}
    for key, entry in value.items():
        if key in NAMED_SETTINGS:
            raise SchemaError(path, f"{name}.config.{key}: say it as {name}.{NAMED_SETTINGS[key]}")
        if isinstance(entry, bool):
            settings[key] = "true" if entry else "false"
        elif isinstance(entry, (str, int, float)):
            settings[key] = str(entry)
        else:
            hint = ' (write names with dots in quotes: "max.message.bytes" = 2000000)'
            raise SchemaError(path, f"{name}.config.{key}: expected text, a number, true or false{hint}")
    return settings
