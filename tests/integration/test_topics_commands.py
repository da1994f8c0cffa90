"""`stream topics inspect` and `tail`: any records of any topic, without a group."""

from __future__ import annotations

import array
import fcntl
import json
import signal
import subprocess
import termios
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from stream import app
from stream.config import Config
from stream.keys import partition_of
from stream.project import Project
from tests.support.cli import follow, hints, stream
from tests.support.groups import publish
from tests.support.processes import STREAM, Command
from tests.support.small import make_project
from tests.support.topics import create_topic, delete_topic, produce_raw
from tests.support.waiting import until


@pytest.fixture
def small(config: Config, tmp_path: Path) -> Config:
    project = make_project(tmp_path / "small")
    small = replace(config, project=project.root)
    app.migrate(small, project)
    return small


def lines(config: Config, *words: str) -> list[dict[str, Any]]:
    """The records that a command prints as JSON lines."""
    result = stream(config, "topics", *words, "--format", "jsonl")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def numbers(config: Config, *words: str) -> list[int]:
    return [one["data"]["n"] for one in lines(config, *words)]


def fill(config: Config, *events: tuple[str | None, int], topic: str = "things") -> list[uuid.UUID]:
    return publish(config, Project(config.project), events, topic=topic)


def transactional(config: Config) -> Producer:
    producer = Producer(
        {"bootstrap.servers": config.bootstrap_servers, "transactional.id": config.prefix + "x"}
    )
    producer.init_transactions(20)
    return producer


def test_a_record_is_told_with_all_that_is_known_of_it(small: Config) -> None:
    [id] = fill(small, ("1", 7))
    partition = partition_of(b"1", 4)
    [one] = lines(small, "inspect", "things")
    assert (one["topic"], one["partition"], one["offset"], one["key"]) == ("things", partition, 0, "1")
    assert (one["event_id"], one["type"], one["schema"], one["schema_name"]) == (
        str(id),
        "Happened",
        1,
        "Happened",
    )
    assert (one["data"], one["problem"]) == ({"n": 7}, None)
    assert ["ce_id", str(id)] in one["headers"]
    assert bytes.fromhex(one["value"][2:]) == Project(small.project).codec.encode("Happened", {"n": 7})
    shown = stream(small, "topics", "inspect", "things")
    assert shown.exit_code == 0
    for text in (
        f"things[{partition}]@0\n",
        f"Happened  {id}",
        "schema    1 (Happened)",
        '  "n": 7',
        "ce_type",
    ):
        assert text in shown.stdout


def test_json_is_one_array_also_of_nothing(small: Config) -> None:
    nothing = stream(small, "topics", "inspect", "things", "--format", "json")
    assert (nothing.exit_code, json.loads(nothing.stdout)) == (0, [])
    assert "no record fits; read: things[0] 0 to 0" in nothing.stderr
    fill(small, ("1", 1), ("2", 2))
    for command in ("inspect", "tail"):
        shown = stream(small, "topics", command, "things", "--format", "json")
        assert sorted(one["data"]["n"] for one in json.loads(shown.stdout)) == [1, 2]


def test_it_starts_and_ends_where_it_is_told(small: Config) -> None:
    fill(small, *(("1", n) for n in range(10)))
    here = ["inspect", "things", "-p", str(partition_of(b"1", 4))]
    assert numbers(small, *here) == list(range(10))
    assert numbers(small, *here, "-o", "7") == [7, 8, 9]
    assert numbers(small, *here, "-o", "-2") == [8, 9]
    assert numbers(small, *here, "-o", "beginning", "-c", "3") == [0, 1, 2]
    assert numbers(small, *here, "-o", "end") == []
    assert numbers(small, *here, "-o", "s@1h") == list(range(10))
    assert numbers(small, *here, "-o", "s@2999-01-01") == []
    assert numbers(small, *here, "-o", "e@1h") == []
    stamp = lines(small, *here)[4]["timestamp"]
    assert 4 in numbers(small, *here, "-o", f"s@{stamp}")
    assert 4 not in numbers(small, *here, "-o", f"e@{stamp}")


def test_a_place_that_is_not_in_the_log_is_told(small: Config) -> None:
    fill(small, ("1", 0))
    partition = partition_of(b"1", 4)
    result = stream(small, "topics", "inspect", "things", "-p", str(partition), "-o", "5")
    assert result.exit_code == 0
    assert f"things[{partition}]: offset 5 is not in the log yet, its end is 1" in result.stderr


def test_a_position_as_every_line_shows_it_is_one_record(small: Config) -> None:
    fill(small, *(("1", n) for n in range(3)))
    partition = partition_of(b"1", 4)
    assert numbers(small, "inspect", f"things[{partition}]@1") == [1]
    gone = stream(small, "topics", "inspect", f"things[{partition}]@9")
    assert gone.exit_code == 1
    assert "offset 9 is not in the log yet, its end is 3" in gone.stderr
    assert follow(small, *hints(gone)).exit_code == 0
    more = stream(small, "topics", "inspect", f"things[{partition}]@1", "-c", "5")
    assert more.exit_code == 2
    assert follow(small, *hints(more)).exit_code == 0


def test_a_key_is_looked_for_in_its_own_partition_alone(small: Config) -> None:
    fill(small, *((str(n % 20), n) for n in range(100)))
    assert numbers(small, "inspect", "things", "--key", "7") == [7, 27, 47, 67, 87]
    assert numbers(small, "tail", "things", "--key", "7", "-c", "2") == [67, 87]
    nothing = stream(small, "topics", "inspect", "things", "--key", "nobody")
    read = f"things[{partition_of(b'nobody', 4)}] 0 to "
    assert nothing.exit_code == 0
    assert f"no record fits; read: {read}" in nothing.stderr
    assert nothing.stderr.count("things[") == 1


def test_the_last_are_those_of_all_partitions_together_by_time(small: Config) -> None:
    for n in range(12):
        fill(small, (str(n), n))
    assert numbers(small, "tail", "things") == list(range(2, 12))
    assert numbers(small, "tail", "things", "-c", "3") == [9, 10, 11]
    assert numbers(small, "tail", "things", "-c", "100") == list(range(12))
    text = stream(small, "topics", "tail", "things", "-c", "1").stdout
    assert text.count("\n") == 1
    assert f"  things[{partition_of(b'11', 4)}]@" in text
    assert text.endswith('  11  Happened 1  {"n": 11}\n')


def test_the_last_of_a_rare_key_are_found_far_back(small: Config) -> None:
    fill(small, ("rare", 0), ("rare", 1))
    neighbour = next(
        str(n) for n in range(99) if partition_of(str(n).encode(), 4) == partition_of(b"rare", 4)
    )
    fill(small, *((neighbour, n) for n in range(2000)))
    assert numbers(small, "tail", "things", "--key", "rare") == [0, 1]


def test_what_cannot_be_decoded_is_shown_and_ends_nothing(small: Config) -> None:
    create_topic(small, "strange")
    codec = Project(small.project).codec
    produce_raw(
        small,
        "strange",
        [
            (b"\xff\x00", b"no avro", None),
            (b"a", None, [("h", None)]),
            (None, codec.encode("Happened", {"n": 1})[:-1], None),
            (b"b", codec.encode("Happened", {"n": 2}), None),
        ],
    )
    bad, tombstone, short, good = lines(small, "inspect", "strange")
    assert bad["problem"].startswith("no-magic: ")
    assert (bad["key"], bad["value"]) == ("\\xff00", "\\x" + b"no avro".hex())
    assert (tombstone["value"], tombstone["problem"], tombstone["headers"]) == (None, None, [["h", None]])
    assert short["problem"].startswith("truncated: ")
    assert (good["data"], good["problem"]) == ({"n": 2}, None)
    shown = stream(small, "topics", "inspect", "strange", "-c", "1").stdout
    assert "payload, 7 bytes that cannot be decoded: no-magic: the value begins with 110" in shown
    assert "6e6f2061 76726f" in shown


def test_values_can_be_had_as_hex_and_byte_for_byte(small: Config) -> None:
    fill(small, ("1", 7))
    value = Project(small.project).codec.encode("Happened", {"n": 7})
    assert stream(small, "topics", "inspect", "things", "--raw").stdout_bytes == value + b"\n"
    hexed = stream(small, "topics", "inspect", "things", "--hex").stdout
    assert f"00000000  {value.hex(' ')}" in hexed
    assert '"n"' not in hexed
    assert value.hex() in stream(small, "topics", "tail", "things", "--hex").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "thing"],
        ["inspect", "things", "-p", "4"],
        ["inspect", "things", "-o", "middle"],
        ["inspect", "things", "-o", "stored"],
        ["inspect", "things", "-c", "0"],
        ["tail", "things", "--follow", "--format", "json"],
        ["tail", "things", "--follow", "-o", "e@1h"],
        ["tail", "things", "--raw", "--hex"],
        ["inspect", "things", "--hex", "--format", "json"],
        ["inspect", "things", "--key", "\\xq"],
        ["inspect", "things[9]@0"],
    ],
)
def test_what_is_asked_wrongly_is_refused_with_code_2_and_nothing_on_stdout(
    small: Config, words: list[str]
) -> None:
    result = stream(small, "topics", *words)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    for command in hints(result):
        if "--follow" not in command:  # that would go on for ever
            assert follow(small, command).exit_code == 0


def test_the_list_has_what_is_there_and_says_what_is_not(small: Config) -> None:
    fill(small, ("a", 1), ("b", 2))
    found = {
        one["topic"]: one for one in json.loads(stream(small, "topics", "list", "--format", "json").stdout)
    }
    assert found["things"] == {
        "topic": "things",
        "partitions": 4,
        "records": 2,
        "events": ["Happened", "Listed"],
    }
    header, *rows = stream(small, "topics", "list").stdout.splitlines()
    assert header.split() == ["TOPIC", "PARTITIONS", "RECORDS", "EVENTS"]
    assert ["things", "4", "2", "Happened,", "Listed"] in [row.split() for row in rows]
    delete_topic(small, "echoes")
    until(lambda: "echoes" not in stream(small, "topics", "list").stdout)
    result = stream(small, "topics", "list")
    assert "declared and not there: echoes" in result.stderr
    assert hints(result) == ["stream migrate"]


def test_a_topic_that_is_not_there_is_named_with_those_that_are(small: Config) -> None:
    result = stream(small, "topics", "tail", "thing")
    assert "there is no topic 'thing' on this cluster (did you mean things?); there are: echoes, things" in (
        result.stderr
    )
    assert hints(result) == ["stream topics inspect things"]
    assert stream(small, "topics", "inspect", "things").exit_code == 0


def test_no_database_is_needed_and_no_broker_is_an_error_of_its_own(small: Config) -> None:
    fill(small, ("1", 1))
    assert stream(small, "topics", "tail", "things", env={"DATABASE_URL": ""}).exit_code == 0
    gone = stream(small, "topics", "tail", "things", env={"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"})
    assert (gone.exit_code, gone.stdout) == (3, "")


def test_no_group_is_made(small: Config) -> None:
    fill(small, ("1", 1))
    stream(small, "topics", "inspect", "things")
    admin = AdminClient({"bootstrap.servers": small.bootstrap_servers})
    groups = admin.list_consumer_groups().result(20).valid
    assert [group.group_id for group in groups if group.group_id.startswith(small.prefix)] == []


def test_open_and_aborted_transactions_and_their_marks_are_gaps(small: Config) -> None:
    create_topic(small, "strange")
    producer = transactional(small)
    for n, ends in enumerate(("commit", "abort", "commit")):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(small.prefix + "strange", b"v%d" % n, b"a")
        producer.flush(20)  # what is not sent when it aborts never is
        getattr(producer, f"{ends}_transaction")(20)
    until(lambda: [one["offset"] for one in lines(small, "inspect", "strange")] == [0, 1, 2, 8, 9, 10])
    assert [one["offset"] for one in lines(small, "tail", "strange", "-c", "4")] == [2, 8, 9, 10]
    gap = stream(small, "topics", "inspect", "strange[0]@5")
    assert (gap.exit_code, gap.stdout) == (1, "")
    assert "no record is at strange[0]@5: a gap" in gap.stderr
    producer.begin_transaction()
    producer.produce(small.prefix + "strange", b"open", b"a")
    producer.flush(20)
    assert [one["offset"] for one in lines(small, "inspect", "strange")] == [0, 1, 2, 8, 9, 10]
    producer.abort_transaction(20)


@pytest.fixture
def follower(small: Config, environment: dict[str, str]) -> Iterator[Command]:
    fill(small, ("1", 0))
    yield Command(
        "topics", "tail", "things", "--follow", "--format", "jsonl", env=environment, cwd=small.project
    )


def test_following_shows_what_comes_and_ends_in_order_on_ctrl_c(small: Config, follower: Command) -> None:
    follower.says("following; Ctrl-C stops")
    for n in range(1, 5):
        fill(small, (str(n), n))

    def shown() -> list[int]:
        return [json.loads(line)["data"]["n"] for line in follower.stdout.splitlines()]

    until(lambda: len(shown()) == 5, what=lambda: f"{follower.stdout}{follower.stderr}")
    assert shown() == [0, 1, 2, 3, 4]
    follower.send(signal.SIGINT)
    assert follower.wait() == 0
    assert "the same signal again stops at once" in follower.stderr


@pytest.mark.long
def test_following_reads_partitions_that_are_added_and_ends_with_its_topic(
    small: Config, follower: Command
) -> None:
    follower.says("following; Ctrl-C stops")
    admin = AdminClient({"bootstrap.servers": small.bootstrap_servers})
    name = small.prefix + "things"
    admin.create_partitions([NewPartitions(name, 12)])[name].result(20)
    until(lambda: len(admin.list_topics(name, timeout=10).topics[name].partitions) == 12)
    key = next(str(n) for n in range(99) if partition_of(str(n).encode(), 12) > 4)
    fill(small, (key, 77))
    until(lambda: '{"n": 77}' in follower.stdout, what=lambda: f"{follower.stdout}{follower.stderr}")
    fill(small, (key, 78))
    until(lambda: '{"n": 78}' in follower.stdout)
    assert follower.stdout.count('{"n": 77}') == 1
    delete_topic(small, "things")
    assert follower.wait() == 1
    assert follower.error == "Error: topic things was deleted"


def test_following_ends_after_a_number_of_records_that_was_asked_for(
    small: Config, environment: dict[str, str]
) -> None:
    words = ("topics", "inspect", "things", "-o", "end", "-f", "-c", "2", "--format", "jsonl")
    command = Command(*words, env=environment, cwd=small.project)
    command.says("following; Ctrl-C stops")
    fill(small, *(("1", n) for n in range(5)))
    assert command.wait() == 0
    assert [json.loads(line)["data"]["n"] for line in command.stdout.splitlines()] == [0, 1]


def test_a_read_that_is_interrupted_shows_what_it_has_and_says_how_to_go_on(
    small: Config, environment: dict[str, str]
) -> None:
    fill(small, *(("1", n) for n in range(3000)))
    partition = partition_of(b"1", 4)
    words = ("topics", "inspect", "things", "-p", str(partition), "--format", "jsonl")
    # Nobody reads its stdout: it stands still once the pipe is full, in the middle of its work.
    command = subprocess.Popen(
        [STREAM, *words], env=environment, cwd=small.project, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert command.stdout is not None
        until(lambda: pending(command.stdout) >= 60_000, what="the pipe is full")
        command.send_signal(signal.SIGINT)
        stdout, stderr = command.communicate(timeout=30)
    finally:
        command.kill()
    shown = [json.loads(line)["data"]["n"] for line in stdout.splitlines()]
    assert shown == list(range(len(shown)))
    assert 0 < len(shown) < 3000
    assert command.returncode == 6
    assert f"stopped; not read: things[{partition}]@{len(shown)} of 3000" in stderr.decode()
    hint = f"stream topics inspect things -p {partition} -o {len(shown)}"
    assert f"-> {hint}\n" in stderr.decode()
    assert numbers(small, *hint.split()[2:]) == list(range(len(shown), 3000))


def pending(pipe: IO[bytes]) -> int:
    """Bytes that wait in a pipe."""
    found = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]
