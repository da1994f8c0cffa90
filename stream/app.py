"""The composition root: what several commands do with project, database and broker together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from stream import database
from stream.config import Config
from stream.database import Connection, query
from stream.discovery import discover
from stream.errors import CheckFailed
from stream.groups import ConsumerGroup
from stream.kafka import admin
from stream.project import Project
from stream.topics import Topic, failing_topics

Progress = Callable[[str], None]


@dataclass
class Migration:
    """What `stream migrate` did, or would do: names, in order."""

    migrations: list[str] = field(default_factory=list)
    event_types: list[str] = field(default_factory=list)
    group_tables: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not self.lines()

    def lines(self) -> list[str]:
        kinds = {
            "migration": self.migrations,
            "event type": self.event_types,
            "tables of group": self.group_tables,
            "topic": self.topics,
        }
        return [f"{kind} {name}" for kind, names in kinds.items() for name in names]


def migrate(config: Config, project: Project) -> Migration:
    """Bring database and broker to what project and package declare. Safe to repeat, and by several at once."""
    groups = discover(project)
    done = Migration()
    with database.connect(config.database_url, application_name="stream-migrate") as connection:
        done.migrations = database.migrate(connection)
        database.lock_migration(connection)
        done.event_types = _changed_event_types(connection, project)
        _write_event_types(connection, project)
        for name, sql in _changed_group_tables(connection, project, groups):
            connection.execute(sql.encode())
            connection.execute(query("write_group_tables"), {"group": name, "sha256": _sha256(sql)})
            done.group_tables.append(name)
    missing = _missing_topics(config, project, groups)
    admin.create_topics(config, missing)
    done.topics = [topic.name for topic in missing]
    return done


def check(config: Config, project: Project) -> None:
    """Raise CheckFailed naming what `stream migrate` would change, and what `discover` raises."""
    groups = discover(project)
    with database.connect(config.database_url, application_name="stream-migrate") as connection:
        wanted = unmigrated(connection, project, groups)
    wanted.topics = [topic.name for topic in _missing_topics(config, project, groups)]
    if not wanted.empty:
        raise CheckFailed("not migrated: " + "; ".join(wanted.lines()), hint="stream migrate")


def unmigrated(connection: Connection, project: Project, groups: dict[str, ConsumerGroup]) -> Migration:
    """What `migrate` would change in the database."""
    return Migration(
        migrations=[f"{number:04d}_{name}" for number, name, _ in database.pending(connection)],
        event_types=_changed_event_types(connection, project),
        group_tables=[name for name, _ in _changed_group_tables(connection, project, groups)],
    )


def require_group_tables(connection: Connection, project: Project, groups: dict[str, ConsumerGroup]) -> None:
    """Raise CheckFailed where tables of these groups, as their files have them, are not there."""
    missing = [name for name, _ in _changed_group_tables(connection, project, groups)]
    if missing:
        raise CheckFailed(f"the database lacks tables of group {', '.join(missing)}", hint="stream migrate")


def sql_of(project: Project) -> str:
    """All the SQL that `migrate` runs on an empty database, for those who run it themselves."""
    parts = ["create schema if not exists stream;"]
    parts.append(database.query("migration_table") + ";")
    for number, name, sql in database.migrations():
        parts.append(f"-- {number:04d}_{name}\n{sql}")
        parts.append(f"insert into stream.migration (number, name) values ({number}, '{name}');")
    for event in _event_types(project):
        values = ", ".join("'" + value.replace("'", "''") + "'" for value in event)
        parts.append(f"insert into stream.event_type (type, topic, required_fields) values ({values});")
    for name, sql in group_tables(project, discover(project)):
        parts.append(f"-- tables of group {name}\n{sql}")
        parts.append(
            f"insert into stream.group_tables (consumer_group, sha256) values ('{name}', '{_sha256(sql)}');"
        )
    return "\n".join(parts)


def group_tables(project: Project, groups: dict[str, ConsumerGroup]) -> list[tuple[str, str]]:
    """(group, SQL) of each group that has tables of its own beside it: consumers/<module>.sql."""
    tables = []
    for name, group in groups.items():
        path = group.path.with_suffix(".sql") if group.path is not None else None
        if path is not None and path.is_file():
            tables.append((name, path.read_text(encoding="utf-8")))
    return tables


def _changed_group_tables(
    connection: Connection, project: Project, groups: dict[str, ConsumerGroup]
) -> list[tuple[str, str]]:
    """Those that are new, or whose file is another than the one applied last."""
    have: dict[str, str] = {}
    if connection.execute("select to_regclass('stream.group_tables')").fetchone() != (None,):
        have = dict(connection.execute("select consumer_group, sha256 from stream.group_tables").fetchall())
    return [(name, sql) for name, sql in group_tables(project, groups) if have.get(name) != _sha256(sql)]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _event_types(project: Project) -> list[tuple[str, str, str]]:
    return [
        (event, topic.name, json.dumps(project.codec.required_fields(event), sort_keys=True))
        for topic in project.topics.topics.values()
        for event in topic.events
    ]


def _changed_event_types(connection: Connection, project: Project) -> list[str]:
    wanted = {event: (topic, json.loads(fields)) for event, topic, fields in _event_types(project)}
    if connection.execute("select to_regclass('stream.event_type')").fetchone() == (None,):
        return sorted(wanted)
    have = {
        event: (topic, fields)
        for event, topic, fields in connection.execute(
            "select type, topic, required_fields from stream.event_type"
        )
    }
    return sorted(event for event in wanted if have.get(event) != wanted[event])


def _write_event_types(connection: Connection, project: Project) -> None:
    rows = _event_types(project)
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    connection.execute(query("write_event_types"), columns)


def declared_topics(project: Project, groups: dict[str, ConsumerGroup]) -> list[Topic]:
    """The catalog's, and for each group the topics of its retries and dead letters."""
    known = project.topics.topics
    wanted = list(known.values())
    for group in groups.values():
        wanted += failing_topics(group.name, [known[topic] for topic in group.topics if topic in known])
    return wanted


def _missing_topics(config: Config, project: Project, groups: dict[str, ConsumerGroup]) -> list[Topic]:
    have = admin.partition_counts(config)
    return [topic for topic in declared_topics(project, groups) if topic.name not in have]
