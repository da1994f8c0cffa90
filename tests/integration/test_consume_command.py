"""stream consume: groups of a project's folder, signals, exit codes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from stream.project import Project
from tests.support.groups import publish
from tests.support.processes import Command, run
from tests.support.small import make_project
from tests.support.waiting import until

pytestmark = pytest.mark.long

GROUP = """
from stream import ConsumerGroup

group = ConsumerGroup("testers", topics=["things"], start="beginning"{options})

@group.on("Happened")
def handle(event, ctx):
    {before}
    ctx.db.execute("insert into effect (key, n) values (%s, %s)", [event.key, event.data["n"]])
    {after}
"""
TABLE = "create table if not exists effect (seq bigint generated always as identity, key text, n int);"


@pytest.fixture
def small(tmp_path: Path, environment: dict[str, str]) -> Project:
    project = make_project(tmp_path / "shop")
    (project.root / "consumers" / "testers.sql").write_text(TABLE)
    write(project)
    migrated = run("migrate", env=environment, cwd=project.root)
    assert migrated.wait() == 0, migrated.stderr
    return project


def write(
    project: Project, *, name: str = "testers", before: str = "", after: str = "", options: str = ""
) -> None:
    text = GROUP.format(before=before or "pass", after=after or "pass", options=options)
    (project.root / "consumers" / f"{name}.py").write_text(text)


@pytest.fixture
def effects(conn: psycopg.Connection[Any]) -> Callable[[], list[tuple[str, int]]]:
    def read() -> list[tuple[str, int]]:
        rows = conn.execute("select key, n from effect order by seq").fetchall()
        conn.commit()
        return rows

    return read


def test_exit_at_end_applies_all_and_says_so(small, config: Config, environment, effects) -> None:
    publish(config, small, [(f"k{n}", n) for n in range(50)])
    command = run("consume", "--group", "testers", "--exit-at-end", env=environment, cwd=small.root)
    assert command.wait() == 0, command.stderr
    assert len(effects()) == 50
    assert "testers: 50 done" in command.stderr
    assert command.stdout == ""


def test_keys_that_still_fail_are_named_with_exit_code_6(small, config, environment, effects) -> None:
    write(small, after="assert event.key != 'bad'")
    publish(config, small, [("bad", 1), ("good", 2)])
    command = run("consume", "--group", "testers", "--exit-at-end", env=environment, cwd=small.root)
    assert command.wait() == 6
    assert command.stderr.splitlines()[-2:] == [
        "Error: group 'testers': left behind, parked: bad",
        "-> stream parked list --group testers",
    ]
    assert effects() == [("good", 2)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_finishes_what_has_started_and_ends_with_0(
    small, config, environment, effects, number
) -> None:
    write(small, before="import time; time.sleep(2)")
    publish(config, small, [("a", 1), ("a", 2)])
    command = Command("consume", "--group", "testers", env=environment, cwd=small.root)
    command.says("partitions.assigned")
    until(lambda: claims_under_way(config))
    command.send(number)
    command.says("waiting for running handlers")
    assert command.wait(10) == 0
    assert effects() == [("a", 1)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_second_signal_ends_at_once_and_loses_nothing(
    small, config, environment, effects, number, code
) -> None:
    write(small, before="import time; time.sleep(15)")
    publish(config, small, [("a", 1)])
    command = Command("consume", "--group", "testers", env=environment, cwd=small.root)
    until(lambda: claims_under_way(config))
    command.send(number)
    command.says("waiting for running handlers")
    before = time.monotonic()
    command.send(number)
    assert command.wait(10) == code
    assert time.monotonic() - before < 2
    write(small)
    again = run("consume", "--group", "testers", "--exit-at-end", env=environment, cwd=small.root)
    assert again.wait() == 0
    assert effects() == [("a", 1)]


def claims_under_way(config: Config) -> bool:
    with psycopg.connect(config.database_url) as conn:
        row = conn.execute(
            "select count(*) from pg_stat_activity where datname = current_database()"
            " and application_name = 'stream-testers' and state = 'idle in transaction'"
        ).fetchone()
    return row is not None and row[0] > 0


def test_a_signal_while_it_starts_ends_with_0(small, environment) -> None:
    write(small, before="pass", options=")\nimport time\nprint('loading', flush=True)\ntime.sleep(20)\nstr(1")
    command = Command("consume", "--group", "testers", env=environment, cwd=small.root)
    until(lambda: "loading" in command.stdout)
    command.send(signal.SIGTERM)
    assert command.wait(10) == 0


def test_several_groups_run_in_one_process_and_a_failing_one_stops_the_others(
    small, config, environment, effects
) -> None:
    write(small, name="other", after="ctx.db.execute('rollback')")
    other = small.root / "consumers" / "other.py"
    other.write_text(other.read_text().replace('"testers"', '"other"'))
    assert run("migrate", env=environment, cwd=small.root).wait() == 0
    publish(config, small, [("a", 1)])
    command = run("consume", "--group", "testers", "--group", "other", env=environment, cwd=small.root)
    assert command.wait() == 1
    assert "ended its transaction" in command.stderr
    assert effects() == [("a", 1)]


def test_out_of_memory_ends_the_process_with_7_and_loses_nothing(small, config, environment, effects) -> None:
    write(small, after="raise MemoryError")
    publish(config, small, [("a", 1)])
    command = run("consume", "--group", "testers", env=environment, cwd=small.root)
    assert command.wait() == 7
    assert "out of memory" in command.stderr
    write(small)
    assert run("consume", "--group", "testers", "--exit-at-end", env=environment, cwd=small.root).wait() == 0
    assert effects() == [("a", 1)]


def test_an_unknown_group_is_named_beside_those_there_are(small, environment) -> None:
    command = run("consume", "--group", "tester", env=environment, cwd=small.root)
    assert command.wait() == 2
    assert command.stderr.splitlines()[-2:] == [
        "Error: unknown group 'tester'; did you mean 'testers'? (groups: testers)",
        "-> stream consume --group testers",
    ]


def test_without_a_group_those_there_are_are_named(small, environment) -> None:
    command = run("consume", env=environment, cwd=small.root)
    assert command.wait() == 2
    assert command.stderr.splitlines()[-2:] == [
        "Error: no group is named; groups: testers",
        "-> stream consume --group testers",
    ]


def test_a_module_that_does_not_import_shows_its_traceback(small, environment) -> None:
    (small.root / "consumers" / "broken.py").write_text("import nothing_of_that_name\n")
    command = run("consume", "--group", "testers", env=environment, cwd=small.root)
    assert command.wait() == 1
    assert "No module named 'nothing_of_that_name'" in command.stderr
    assert "broken.py" in command.stderr
    assert "discovery.py" not in command.stderr


def test_a_database_without_migrations_is_a_check_that_fails(small, environment, conn) -> None:
    conn.execute("drop schema stream cascade")
    conn.commit()
    command = run("consume", "--group", "testers", env=environment, cwd=small.root)
    assert command.wait() == 5
    assert "stream migrate" in command.stderr


@pytest.mark.parametrize("what", ["KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"])
def test_an_address_that_does_not_answer_is_said_within_ten_seconds(small, environment, what) -> None:
    address = {
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/x",
    }
    before = time.monotonic()
    command = run("consume", "--group", "testers", env={**environment, what: address[what]}, cwd=small.root)
    assert command.wait() == 3
    assert time.monotonic() - before < 12
    assert "127.0.0.1:1" in command.stderr
    assert "secret" not in command.stderr


def test_a_group_whose_tables_are_not_there_is_refused_with_the_command_to_type(small, environment) -> None:
    loyalty = (small.root / "consumers" / "testers.py").read_text().replace("testers", "loyalty")
    (small.root / "consumers" / "loyalty.py").write_text(loyalty)
    (small.root / "consumers" / "loyalty.sql").write_text("create table points (key text);")
    command = run("consume", "--group", "testers", "--exit-at-end", env=environment, cwd=small.root)
    assert command.wait() == 0, command.stderr
    command = run("consume", "--group", "loyalty", "--exit-at-end", env=environment, cwd=small.root)
    assert command.wait() == 5
    assert command.stderr.splitlines()[-2:] == [
        "Error: the database lacks tables of group loyalty",
        "-> stream migrate",
    ]


def test_a_file_called_email_hides_no_standard_module(small, config, environment, effects) -> None:
    (small.root / "consumers" / "testers.py").rename(small.root / "consumers" / "email.py")
    (small.root / "consumers" / "testers.sql").rename(small.root / "consumers" / "email.sql")
    path = small.root / "consumers" / "email.py"
    path.write_text("from email.message import EmailMessage\n" + path.read_text())
    publish(config, small, [("a", 1)])
    command = run("consume", "--group", "testers", "--exit-at-end", env=environment, cwd=small.root)
    assert command.wait() == 0, command.stderr
    assert effects() == [("a", 1)]
