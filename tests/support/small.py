"""A small project of its own: two event types, no application. And records of it, made without a broker."""

from __future__ import annotations

import itertools
import json
import uuid
from datetime import UTC, datetime
from pathlib import Path

from stream.events import Record, cloud_headers
from stream.project import Project

TOPICS = """
[things]
events = ["Happened", "Listed"]
partitions = 4

[echoes]
events = ["Echoed"]
partitions = 2
"""

_offsets = itertools.count()


def make_project(root: Path) -> Project:
    """Happened and Listed on topic things, Echoed on echoes; each has one field `n`."""
    schemas = root / "schemas"
    schemas.mkdir(parents=True)
    (root / "consumers").mkdir()
    for number, name in enumerate(["Happened", "Listed", "Echoed"], 1):
        schema = {"type": "record", "name": name, "fields": [{"name": "n", "type": "long"}]}
        (schemas / f"{number:04d}-{name}.avsc").write_text(json.dumps(schema))
    (schemas / "topics.toml").write_text(TOPICS)
    return Project(root)


def record(
    project: Project,
    key: str | bytes | None,
    n: int = 0,
    *,
    type: str = "Happened",
    id: uuid.UUID | None = None,
    **changes: object,
) -> Record:
    """A record as the relay would publish it, at a position of its own; `changes` replace its attributes."""
    now = datetime.now(UTC)
    made = Record(
        topic="things",
        partition=0,
        offset=next(_offsets),
        key=key.encode() if isinstance(key, str) else key,
        value=project.codec.encode(type, {"n": n}),
        headers=cloud_headers(str(id or uuid.uuid4()), type, now),
        timestamp=int(now.timestamp() * 1000),
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made
