"""What people get wrong before a group runs: one clear error each, the exit code of its kind, and no password."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from stream.project import Project
from tests.conftest import database_named
from tests.support.effects import consume, effect_project, migrate, write_group
from tests.support.processes import run


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return effect_project(tmp_path / "shop")


@contextmanager
def silent_server() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_an_address_that_answers_nothing_is_named_within_ten_seconds(
    shop: Project, environment: dict[str, str]
) -> None:
    migrate(shop, environment)
    with ExitStack() as stack:
        kafka, postgres = stack.enter_context(silent_server()), stack.enter_context(silent_server())
        started = time.monotonic()
        commands = {
            kafka: consume(shop, {**environment, "KAFKA_BOOTSTRAP_SERVERS": kafka}),
            postgres: consume(
                shop, {**environment, "DATABASE_URL": f"postgresql://me:s3cret@{postgres}/shop"}
            ),
        }
        for address, command in commands.items():
            assert command.wait() == 3, command.stderr
            assert address in command.stderr and "s3cret" not in command.stderr
        # Ten, and what it takes to start two programs beside everything else.
        assert time.monotonic() - started < 13


def test_a_wrong_password_is_refused_and_never_printed(shop: Project, environment: dict[str, str]) -> None:
    url = psycopg.conninfo.conninfo_to_dict(environment["DATABASE_URL"])
    wrong = f"postgresql://{url['user']}:n0t-th1s-one@{url['host']}:{url['port']}/{url['dbname']}"
    command = run(
        "--log-level=debug",
        "consume",
        "--group=testers",
        env={**environment, "DATABASE_URL": wrong},
        cwd=shop.root,
    )
    assert command.wait() == 3
    assert (
        f"{url['host']}:{url['port']}" in command.stderr
        and "password authentication failed" in command.stderr
    )
    assert "n0t-th1s-one" not in command.stdout + command.stderr


def test_a_database_that_is_not_there_is_named(shop: Project, environment: dict[str, str]) -> None:
    nowhere = database_named(environment["DATABASE_URL"], "nowhere")
    command = consume(shop, {**environment, "DATABASE_URL": nowhere})
    assert command.wait() == 3
    assert "nowhere" in command.stderr


def test_a_missing_topic_is_a_check_that_fails(shop: Project, environment: dict[str, str]) -> None:
    migrate(shop, {**environment, "STREAM_PREFIX": f"{environment['STREAM_PREFIX']}elsewhere."})
    command = consume(shop, environment)  # the database is migrated, the broker has no topic of this prefix
    assert command.wait() == 5
    assert command.stderr.splitlines()[-2:] == [
        "Error: group 'testers': topics things, testers.retry, testers.dlq do not exist",
        "-> stream migrate",
    ]


def test_a_misspelt_option_is_named_with_the_right_one(shop: Project, environment: dict[str, str]) -> None:
    path = write_group(shop, concurency=4)
    command = consume(shop, environment)
    assert command.wait() == 2
    assert str(path) in command.stderr
    assert "unknown option 'concurency'; did you mean 'concurrency'?" in command.stderr
