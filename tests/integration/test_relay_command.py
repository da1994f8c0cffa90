"""`stream relay` as a command: exit codes, addresses that answer nothing, secrets, signals."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from stream.project import Project
from tests.support.processes import Command, run
from tests.support.small import make_project
from tests.support.topics import read_all
from tests.support.truth import Truth, append_bytes
from tests.support.waiting import until

Conn = psycopg.Connection[Any]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "small")


@contextmanager
def silent_port() -> Iterator[int]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_once_publishes_all_and_ends_with_0(truth: Truth, environment: dict[str, str]) -> None:
    truth.commit("a", "b", "a")
    ended = run("relay", "--once", env=environment, cwd=truth.project.root)
    assert (ended.wait(), ended.stdout) == (0, "")
    assert "3 published" in ended.stderr
    assert truth.check() == 0


def test_once_ends_with_6_naming_what_is_left(truth: Truth, environment: dict[str, str], conn: Conn) -> None:
    """A topic that is not there, and an event that does not fit; the others are out."""
    truth.commit("good")
    conn.execute("""select stream.append('Happened', 'bad', '{"n": "x"}'::jsonb || '{"n": 1.5}')""")
    append_bytes(conn, "nowhere", b"k", b"1")
    conn.commit()
    ended = run("relay", "--once", env=environment, cwd=truth.project.root)
    assert ended.wait() == 6
    last = ended.stderr.splitlines()[-2:]
    assert last == [
        "Error: topic nowhere: the topic does not exist; topic things: 1 rows rejected",
        "-> stream outbox status   (and stream outbox rejected)",
    ]
    assert len(read_all(truth.config, "things")) == 1


def test_an_address_that_answers_nothing_is_named_within_ten_seconds(
    project: Project, environment: dict[str, str]
) -> None:
    with silent_port() as port:
        silent, nobody = f"127.0.0.1:{port}", "127.0.0.1:1"
        variables = {
            silent: {"KAFKA_BOOTSTRAP_SERVERS": silent},
            f"{silent}/orders": {"DATABASE_URL": f"postgresql://shop:s3cret@{silent}/orders"},
            f"{nobody}/orders": {"DATABASE_URL": f"postgresql://shop:s3cret@{nobody}/orders"},
        }
        relays = {
            shown: Command("relay", env={**environment, **given}, cwd=project.root)
            for shown, given in variables.items()
        }
        for shown, relay in relays.items():
            begun = time.monotonic()
            assert relay.wait(30) == 3
            assert time.monotonic() - begun < 20  # six, the start of an interpreter, and a busy machine
            assert shown in relay.stderr
            assert "s3cret" not in relay.stderr


def test_a_wrong_password_is_never_shown(
    project: Project, environment: dict[str, str], config: Config
) -> None:
    right = psycopg.conninfo.conninfo_to_dict(config.database_url)["password"]
    url = config.database_url.replace(str(right), "wr0ng-and-secret")
    ended = run("relay", env={**environment, "DATABASE_URL": url}, cwd=project.root)
    assert ended.wait() == 3
    assert "password authentication failed" in ended.stderr
    assert "wr0ng" not in ended.stderr + ended.stdout


def test_a_wrong_setting_of_the_client_is_a_usage_error(
    project: Project, environment: dict[str, str]
) -> None:
    settings = ["-X", "security.protocol=ssl", "-X", "ssl.ca.location=/nowhere/ca.pem"]
    ended = run("relay", *settings, env=environment, cwd=project.root)
    assert ended.wait() == 2
    assert ended.stderr.startswith("Error: Kafka settings: ")


def test_a_database_without_the_migrations_is_refused_with_the_command_to_type(
    project: Project, environment: dict[str, str], conn: Conn
) -> None:
    conn.execute("drop schema stream cascade")
    conn.commit()
    ended = run("relay", "--once", env=environment, cwd=project.root)
    assert (ended.wait(), ended.stderr.splitlines()[-1]) == (5, "-> stream migrate")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_drains_and_ends_with_0(
    truth: Truth, environment: dict[str, str], number: signal.Signals, conn: Conn
) -> None:
    many = [{"type": "Happened", "key": f"k{n % 3}", "data": {"n": n}} for n in range(2000)]
    relay = Command("relay", env=environment, cwd=truth.project.root)
    relay.says("relay.shards")
    truth.outbox.append_many(conn, many)
    conn.commit()
    relay.send(number)
    assert relay.wait(25) == 0
    assert "waiting for rows in flight" in relay.stderr
    [(left,)] = conn.execute("select count(*) from stream.outbox")
    published = read_all(truth.config, "things")
    assert len(published) + left == 2000, "what was acknowledged is deleted, what was not sent is left"


@pytest.mark.parametrize("library", ["python", "psycopg", "confluent_kafka", "fastavro"])
def test_a_signal_while_the_command_is_loaded_ends_with_0(
    project: Project, environment: dict[str, str], library: str
) -> None:
    relay = Command("relay", env=environment, cwd=project.root)
    maps = Path(f"/proc/{relay.pid}/maps")
    if library == "python":  # as soon as it has a handler
        until(lambda: int(_status(relay.pid)["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1)
    else:
        until(lambda: library in maps.read_text())
    relay.send(signal.SIGTERM)
    assert relay.wait(10) == 0


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("silent", ["KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"])
def test_a_signal_during_the_start_ends_with_0(
    project: Project, environment: dict[str, str], config: Config, silent: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        given = {"KAFKA_BOOTSTRAP_SERVERS": address, "DATABASE_URL": f"postgresql://{address}/orders"}
        relay = Command("relay", env={**environment, silent: given[silent]}, cwd=project.root)
        server.settimeout(30)
        with server.accept()[0]:
            begun = time.monotonic()
            relay.send(signal.SIGTERM)
            assert relay.wait(10) == 0
            assert time.monotonic() - begun < 4


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_second_signal_ends_it_within_two_seconds_and_loses_nothing(
    truth: Truth,
    environment: dict[str, str],
    number: signal.Signals,
    code: int,
    conn: Conn,
    database_url: str,
) -> None:
    """The drain waits for the delete of a published row, which another session holds."""
    truth.commit("k")
    conn.execute("select from stream.outbox for update")
    relay = Command("relay", env=environment, cwd=truth.project.root)
    with psycopg.connect(database_url, autocommit=True) as watch:
        until(lambda: watch.execute(WAITING).fetchone() == (1,), 20, "the relay waits for the row")
    relay.send(number)
    relay.says("the same signal again stops at once")
    assert relay.running
    relay.send(number)
    begun = time.monotonic()
    assert relay.wait(10) == code
    assert time.monotonic() - begun < 2
    conn.rollback()
    assert run("relay", "--once", env=environment, cwd=truth.project.root).wait() == 0
    assert truth.check() <= 1


WAITING = """
select count(*) from pg_stat_activity
where application_name = 'stream-relay' and datname = current_database() and wait_event_type = 'Lock'
"""
