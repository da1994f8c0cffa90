"""The embedded stack, on servers of its own: these tests kill, halt and move them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from stream import stack
from stream.errors import StreamError
from stream.stack import kafka, ports, postgres, state
from tests.support.waiting import until

pytestmark = pytest.mark.long

TOPIC = "kept"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root's database is outside the project")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A stack that the tests of this file share: each leaves it able to come up again."""
    folder = tmp_path_factory.mktemp("shop") / stack.FOLDER
    stack.up(folder)
    yield folder
    stack.down(folder, delete=True)
    assert stack.processes(folder) == {}
    assert not folder.exists()


@pytest.fixture
def up(data: Path) -> stack.Addresses:
    return stack.up(data)


def write(addresses: stack.Addresses) -> str:
    """Put a new value into both servers."""
    value = uuid.uuid4().hex
    with psycopg.connect(addresses.database_url) as connection:
        connection.execute("create table if not exists kept (value text)")
        connection.execute("insert into kept values (%s)", [value])
    admin = AdminClient({"bootstrap.servers": addresses.bootstrap_servers})
    if TOPIC not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(20)
    producer = Producer({"bootstrap.servers": addresses.bootstrap_servers, "acks": "all"})
    producer.produce(TOPIC, value.encode())
    assert producer.flush(20) == 0
    return value


def read(addresses: stack.Addresses) -> tuple[str, str]:
    """The newest value of each server: PostgreSQL's, Kafka's."""
    with psycopg.connect(addresses.database_url) as connection:
        row = connection.execute("select value from kept order by ctid desc limit 1").fetchone()
    assert row is not None
    consumer = Consumer({"bootstrap.servers": addresses.bootstrap_servers, "group.id": "reader"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=20)
        consumer.assign([TopicPartition(TOPIC, 0, end - 1)])
        message = consumer.poll(20)
    finally:
        consumer.close()
    assert message is not None
    return row[0], (message.value() or b"").decode()


def broker_settings(addresses: stack.Addresses) -> dict[str, str | None]:
    admin = AdminClient({"bootstrap.servers": addresses.bootstrap_servers})
    resource = ConfigResource(ResourceType.BROKER, "1")
    entries = admin.describe_configs([resource])[resource].result(20)
    return {name: entry.value for name, entry in entries.items()}


def kill(data: Path, *names: str, number: signal.Signals = signal.SIGKILL) -> dict[str, int]:
    """Send the signal to servers by name; returns the pids they had."""
    before = stack.processes(data)
    for name in names:
        os.kill(before[name], number)
    if number == signal.SIGKILL:
        until(lambda: not set(names) & set(stack.processes(data)), what="the killed servers to be gone")
    return before


def test_up_again_changes_nothing(data: Path, up: stack.Addresses) -> None:
    before = stack.processes(data)
    assert set(before) == {"kafka", "postgres"}
    assert stack.up(data) == up
    assert stack.processes(data) == before


def test_it_listens_on_the_loopback_address_and_nowhere_else(data: Path, up: stack.Addresses) -> None:
    for pid in stack.processes(data).values():
        listening = [one for one in psutil.Process(pid).net_connections() if one.status == psutil.CONN_LISTEN]
        assert listening
        assert {one.laddr.ip.removeprefix("::ffff:") for one in listening} == {"127.0.0.1"}


def test_the_broker_works_with_the_settings_it_was_given(up: stack.Addresses) -> None:
    found = broker_settings(up)
    expected = {**kafka.SETTINGS, **kafka.SMALL}
    assert {name: found[name] for name in expected} == expected


def test_the_compose_file_names_no_setting_that_the_broker_does_not_know(up: stack.Addresses) -> None:
    from tests.unit.test_compose import BROKERS, properties

    found = broker_settings(up)
    assert {name for broker in BROKERS for name in properties(broker)} <= set(found)


def test_the_database_works_with_the_settings_it_was_given(up: stack.Addresses) -> None:
    with psycopg.connect(up.database_url) as connection:
        for name, value in postgres.SETTINGS.items():
            row = connection.execute("select current_setting(%s)", [name]).fetchone()
            assert row == (value,)


def test_the_first_group_need_not_wait_for_the_topic_of_offsets(up: stack.Addresses) -> None:
    admin = AdminClient({"bootstrap.servers": up.bootstrap_servers})
    assert "__consumer_offsets" in admin.list_topics(timeout=10).topics


def test_the_database_refuses_a_wrong_password(up: stack.Addresses) -> None:
    head, _, tail = up.database_url.rpartition("@")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(f"{head.rpartition(':')[0]}:wrong@{tail}")


def test_a_killed_broker_comes_back_with_its_port_and_its_records(data: Path, up: stack.Addresses) -> None:
    value = write(up)
    before = kill(data, "kafka")
    assert stack.running_in(data) is None
    assert stack.up(data) == up
    assert read(up) == (value, value)
    after = stack.processes(data)
    assert after["postgres"] == before["postgres"]
    assert after["kafka"] != before["kafka"]


def test_both_killed_come_back_with_all_they_had(data: Path, up: stack.Addresses) -> None:
    value = write(up)
    kill(data, "kafka", "postgres")
    assert stack.up(data) == up
    assert read(up) == (value, value)


def test_a_halted_server_is_replaced(data: Path, up: stack.Addresses) -> None:
    value = write(up)
    before = kill(data, "kafka", "postgres", number=signal.SIGSTOP)
    assert {one.state for one in stack.status(data)} == {"not answering"}
    assert stack.up(data) == up
    assert read(up) == (value, value)
    assert not set(before.values()) & set(stack.processes(data).values())


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_postgres_is_restarted_alone(data: Path, up: stack.Addresses, mode: str) -> None:
    value = write(up)
    before = stack.processes(data)
    stack.restart_postgres(data, "immediate" if mode == "immediate" else "fast")
    after = stack.processes(data)
    assert after["kafka"] == before["kafka"]
    assert after["postgres"] != before["postgres"]
    assert stack.running_in(data) == up
    assert read(up) == (value, value)


def test_servers_nobody_wrote_down_are_adopted(data: Path, up: stack.Addresses) -> None:
    before = stack.processes(data)
    known = state.load(data)
    assert known is not None
    known.kafka_pid = known.postgres_pid = None
    known.save(data)
    assert stack.running_in(data) is None
    assert stack.up(data) == up
    assert stack.processes(data) == before
    assert stack.running_in(data) == up


def test_a_number_that_another_process_has_now_keeps_nothing_from_starting(
    data: Path, up: stack.Addresses
) -> None:
    kill(data, "postgres")
    pid_file = Path(postgres.Postgres(data, state.State(), print).home) / "data" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    owner = pid_file.stat()
    other = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, user=owner.st_uid, group=owner.st_gid)
    try:
        pid_file.write_text("\n".join([str(other.pid), *lines[1:], ""]))
        assert stack.up(data) == up
    finally:
        other.communicate()


def test_a_port_taken_meanwhile_is_left_to_its_taker(data: Path, up: stack.Addresses) -> None:
    value = write(up)
    taken = int(up.bootstrap_servers.split(":")[1])
    stack.down(data)
    said: list[str] = []
    with socket.create_server((ports.HOST, taken)):
        moved = stack.up(data, progress=said.append)
    assert moved.bootstrap_servers != up.bootstrap_servers
    assert moved.database_url == up.database_url
    assert said == [
        f"port {taken} is taken by another program: Kafka gets {moved.bootstrap_servers.split(':')[1]}"
    ]
    assert read(moved) == (value, value)
    stack.down(data)
    assert stack.up(data) == moved, "once moved, it stays"


def test_a_stack_whose_folder_was_removed_under_it_is_replaced(tmp_path: Path) -> None:
    data = tmp_path / stack.FOLDER
    try:
        first = stack.up(data)
        before = stack.processes(data)
        shutil.rmtree(data)
        second = stack.up(data)
        after = stack.processes(data)
        assert not set(before.values()) & set(after.values())
        assert not any(psutil.pid_exists(pid) and alive(pid) for pid in before.values())
        assert second.database_url != first.database_url
        with psycopg.connect(second.database_url) as connection:
            assert connection.execute("select to_regclass('kept')").fetchone() == (None,)
        shutil.rmtree(data)
        stack.down(data)
        assert stack.processes(data) == {}
    finally:
        stack.down(data, delete=True)


def alive(pid: int) -> bool:
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@as_root
def test_roots_database_runs_as_another_user_in_a_folder_of_its_own(data: Path, up: stack.Addresses) -> None:
    pid = stack.processes(data)["postgres"]
    assert psutil.Process(pid).uids().real != 0
    known = state.load(data)
    assert known is not None and known.postgres_home is not None
    home = Path(known.postgres_home)
    assert (home / "data").stat().st_uid == psutil.Process(pid).uids().real
    assert (home / "data").stat().st_mode & 0o777 == 0o700
    for folder in (home, *home.parents):
        assert folder.stat().st_uid == 0
        assert not folder.stat().st_mode & 0o022 or folder.stat().st_mode & 0o1000
    assert data.stat().st_mode & 0o777 == 0o700, "nobody's rights in the project were widened"


@as_root
def test_what_root_runs_postgres_from_cannot_be_changed_by_its_user(data: Path, up: stack.Addresses) -> None:
    program = Path(psutil.Process(stack.processes(data)["postgres"]).exe())
    for path in (program, *program.parents):
        assert path.stat().st_uid == 0
        assert not path.stat().st_mode & 0o022


@as_root
def test_a_folder_that_was_copied_does_not_share_the_others_database(
    data: Path, up: stack.Addresses, tmp_path: Path
) -> None:
    copy = tmp_path / stack.FOLDER
    copy.mkdir()
    shutil.copy(data / state.FILE, copy)
    with pytest.raises(StreamError, match="was moved or copied from elsewhere"):
        stack.up(copy)
    assert stack.processes(copy) == {}


def test_secrets_are_in_one_file_only(data: Path, up: stack.Addresses) -> None:
    password = json.loads((data / state.FILE).read_text())["password"]
    for pid in stack.processes(data).values():
        process = psutil.Process(pid)
        assert password not in " ".join(process.cmdline())
        assert password not in " ".join(process.environ().values())
    holders = [path for path in data.rglob("*") if path.is_file() and password.encode() in path.read_bytes()]
    assert holders == [data / state.FILE]
