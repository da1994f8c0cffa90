"""Every scenario of `stream rewind`, next to Kafka's own tool with the same flags on the same topic."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from stream.config import Config
from tests.support.cli import follow, hints, stream, stream_json
from tests.support.effects import effect_project
from tests.support.kafkatools import Offsets, reset_offsets
from tests.support.topics import create_topic

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

BEGIN = datetime(2026, 3, 1, 12, 0, 0, 123000, tzinfo=UTC)
STEP = timedelta(minutes=10)
DAYS = (datetime.now(UTC) - BEGIN).days

SCENARIOS: dict[str, list[str]] = {
    "earliest": ["--to-earliest"],
    "latest": ["--to-latest"],
    "current": ["--to-current"],
    "offset": ["--to-offset", "3"],
    "offset below the log": ["--to-offset", "0"],
    "offset past the end": ["--to-offset", "1000"],
    "on": ["--shift-by", "2"],
    "back": ["--shift-by", "-2"],
    "on past the end": ["--shift-by", "1000"],
    "back past the beginning": ["--shift-by", "-1000"],
    "a time without zone is UTC": ["--to-datetime", "2026-03-01T12:30:00.123"],
    "UTC": ["--to-datetime", "2026-03-01T12:30:00.124Z"],
    "a zone with minutes": ["--to-datetime", "2026-03-01T18:00:00.123+05:30"],
    "a time before all": ["--to-datetime", "2020-01-01T00:00:00.000"],
    "a time past the end": ["--to-datetime", "2026-06-01T00:00:00.000"],
    "so long ago that all is younger": ["--by-duration", f"P{DAYS + 1}D"],
    "so short ago that all is older": ["--by-duration", "PT1H30M"],
    "some partitions": ["--to-earliest", "--topic", "things:0,2"],
}


@pytest.fixture
def topic(config: Config, tmp_path: Path) -> Config:
    """Partition 0: ten records, ten minutes apart. 1: the same, the first four deleted. 2: never written to. 3: the
    same, all deleted. Partition 0 alone is behind."""
    project = effect_project(tmp_path / "shop", "testers", "fresh", "other")
    create_topic(config, "things", 4, **{"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": config.bootstrap_servers})
    for partition in (0, 1, 3):
        for n in range(10):
            at = int((BEGIN + n * STEP).timestamp() * 1000)
            headers = {"ce_id": str(uuid.uuid4()), "ce_type": "Happened"}
            producer.produce(config.prefix + "things", b"", b"k", partition, timestamp=at, headers=headers)
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    name = config.prefix + "things"
    for future in admin.delete_records([TopicPartition(name, 1, 4), TopicPartition(name, 3, 10)]).values():
        future.result(20)
    commit(config, "testers", {0: 5, 1: 10, 2: 0, 3: 10})
    commit(config, "other", {0: 7, 1: 6})
    return Config(project.root, config.bootstrap_servers, config.database_url, config.prefix)


def commit(config: Config, group: str, offsets: Mapping[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": config.bootstrap_servers, "group.id": config.prefix + group})
    name = config.prefix + "things"
    consumer.commit(offsets=[TopicPartition(name, p, o) for p, o in offsets.items()], asynchronous=False)
    consumer.close()


def theirs(config: Config, group: str, words: list[str]) -> Offsets:
    prefixed = [config.prefix + word if word.startswith("things") else word for word in words]
    scope = [] if "--topic" in words or "--from-file" in words else ["--topic", config.prefix + "things"]
    offsets, said = reset_offsets(config, group, *prefixed, *scope, "--dry-run")
    assert offsets, said
    return offsets


def ours(config: Config, group: str, words: list[str]) -> Offsets:
    result = stream(config, "rewind", "--group", group, *words, "--export")
    assert result.exit_code == 0, result.output
    rows = [line.split(",") for line in result.stdout.splitlines()]
    return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def test_every_scenario_is_as_kafkas_tool_has_it(topic: Config, tmp_path: Path) -> None:
    wrong = {}
    for name, words in SCENARIOS.items():
        if (found := ours(topic, "testers", words)) != (expected := theirs(topic, "testers", words)):
            wrong[name] = (found, expected)
    assert wrong == {}

    lines = ["things,0,2", "things,1,1", "things,2,0", "things,3,50"]
    (tmp_path / "ours.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "theirs.csv").write_text("".join(f"{topic.prefix}{line}\n" for line in lines))
    found = ours(topic, "testers", ["--from-file", str(tmp_path / "ours.csv")])
    assert found == theirs(topic, "testers", ["--from-file", str(tmp_path / "theirs.csv")])
    assert found == {("things", 0): 2, ("things", 1): 4, ("things", 2): 0, ("things", 3): 10}


def test_a_group_without_commits_is_as_kafkas_tool_has_it(topic: Config) -> None:
    for words in (["--to-current"], ["--to-earliest"], ["--to-datetime", "2026-03-01T12:30:00.123"]):
        assert ours(topic, "fresh", words) == theirs(topic, "fresh", words)
    none, said = reset_offsets(
        topic, "fresh", "--shift-by", "1", "--topic", f"{topic.prefix}things", "--dry-run"
    )
    assert not none and "Cannot shift offset" in said

    result = stream(topic, "rewind", "--group", "fresh", "--shift-by", "1")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "no committed offset for things[0]" in result.stderr


def test_what_kafkas_tool_does_is_where_the_group_then_is(topic: Config, tmp_path: Path) -> None:
    """Executed by both, one after the other, from the same place."""
    for words in (["--shift-by", "-3"], ["--to-datetime", "2026-03-01T12:50:00.000"], ["--to-offset", "4"]):
        commit(topic, "testers", {0: 5, 1: 10, 2: 0, 3: 10})
        reset_offsets(topic, "testers", *words, "--topic", f"{topic.prefix}things", "--execute")
        theirs_then = ours(topic, "testers", ["--to-current"])
        commit(topic, "testers", {0: 5, 1: 10, 2: 0, 3: 10})
        result = stream(topic, "rewind", "--group", "testers", *words, "--repair", "--execute")
        assert result.exit_code == 0, result.output
        assert ours(topic, "testers", ["--to-current"]) == theirs_then


def test_a_plan_says_what_its_offsets_mean(topic: Config) -> None:
    plan = stream_json(topic, "rewind", "--group", "testers", "--to-datetime", "2026-03-01T12:30:00.000")
    at = (BEGIN + 3 * STEP).isoformat().replace("+00:00", "Z")
    younger = (BEGIN + 4 * STEP).isoformat().replace("+00:00", "Z")

    def part(
        partition: int, old: int | None, new: int, records: int, first: Any, note: Any
    ) -> dict[str, Any]:
        fields = ("topic", "partition", "old", "new", "records", "first_record_at", "note")
        return dict(zip(fields, ("things", partition, old, new, records, first, note), strict=True))

    assert plan == {
        "group": "testers",
        "mode": None,
        "partitions": [
            part(0, 5, 3, 2, at, None),
            part(1, 10, 4, 6, younger, None),
            part(2, 0, 0, 0, None, "empty"),
            part(3, 10, 10, 0, None, "empty"),
        ],
        "total": 8,
        "looked_up": 8,
        "in_ledger": 0,
        "parked": 0,
        "dead": 0,
    }

    notes = {
        partition["partition"]: partition["note"]
        for partition in stream_json(topic, "rewind", "--group", "testers", "--shift-by", "9")["partitions"]
    }
    assert notes == {0: "clamped, skips 5", 1: "clamped", 2: "empty", 3: "empty"}


def test_another_groups_offsets_are_copied_and_what_it_has_none_of_stays(topic: Config) -> None:
    assert ours(topic, "testers", ["--to-group", "other"]) == {("things", 0): 7, ("things", 1): 6}

    result = stream(topic, "rewind", "--group", "testers", "--to-group", "fresh")
    assert result.exit_code == 4
    assert "'fresh' has no committed offset" in result.stderr


def test_several_groups_are_moved_by_one_command_and_their_export_is_read_again(
    topic: Config, tmp_path: Path
) -> None:
    groups = ["--group", "testers", "--group", "other"]
    saved = stream(topic, "rewind", *groups, "--to-current", "--export")
    assert saved.stdout.splitlines()[0] == "testers,things,0,5"
    # It has committed nothing there: the end, as Kafka's tool says.
    assert "other,things,3,10" in saved.stdout
    (tmp_path / "saved.csv").write_text(saved.stdout)

    plan = stream(topic, "rewind", *groups, "--to-earliest")
    commands = [hint for hint in hints(plan) if hint.startswith("stream rewind")]
    assert [command.split("--to-earliest ")[1] for command in commands] == [
        "--repair --execute",
        "--reapply --execute",
    ]
    assert follow(topic, commands[0]).exit_code == 0
    assert {ours(topic, group, ["--to-current"])["things", 0] for group in ("testers", "other")} == {0}

    back = stream(
        topic, "rewind", *groups, "--from-file", str(tmp_path / "saved.csv"), "--repair", "--execute"
    )
    assert back.exit_code == 0, back.output
    assert stream(topic, "rewind", *groups, "--to-current", "--export").stdout == saved.stdout
