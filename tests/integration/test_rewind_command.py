"""`stream rewind`: what it refuses, what it shows of what failed, and what it asks."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream import ConsumerGroup, Context, Event, PermanentError, TransientError, surveys
from stream.config import Config, RetrySettings
from stream.database import LOCK_REWIND
from stream.project import Project
from stream.stack import ports
from tests.support.cli import follow, hints, stream, stream_json
from tests.support.effects import committed
from tests.support.groups import Member, publish
from tests.support.letters import rows
from tests.support.processes import STREAM
from tests.support.small import make_project
from tests.support.topics import create_topic
from tests.support.waiting import until

INSERT = "insert into effect (event_id, key, n) values (%s, %s, %s)"
# What failed once is parked, and stays so while a test looks at it.
PATIENT = replace(RetrySettings(), first_s=3600.0, soon_s=0.0, most_s=3600.0)
TO_THE_BEGINNING = ("rewind", "--group", "testers", "--to-earliest")
REPAIR = (*TO_THE_BEGINNING, "--repair", "--execute")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "small")


@pytest.fixture
def small(config: Config, project: Project, conn: psycopg.Connection[Any]) -> Config:
    for topic in ("things", "testers.retry", "testers.dlq"):
        create_topic(config, topic, 2)
    conn.execute("create table effect (event_id uuid, key text, n int)")
    conn.commit()
    return replace(config, project=project.root, retries=PATIENT)


@pytest.fixture
def member(project: Project, small: Config) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(handler: Any = None, *, exit_at_end: bool = False, **options: Any) -> Member:
        group = ConsumerGroup("testers", topics=["things"], start="beginning", **options)
        group.on("Happened")(handler or apply)
        made.append(Member(group, project, small, exit_at_end=exit_at_end))
        return made[-1]

    yield make
    for each in made:
        if each.running:
            each.end()


def apply(event: Event, ctx: Context) -> None:
    ctx.db.execute(INSERT, [event.id, event.key, event.data["n"]])


def numbers(conn: psycopg.Connection[Any]) -> list[int]:
    return sorted(n for (n,) in rows(conn, "select n from effect"))


@pytest.fixture
def at_rest(
    small: Config, project: Project, member: Callable[..., Member], conn: psycopg.Connection[Any]
) -> Config:
    """The group has applied ten events and has no member."""
    publish(small, project, [(f"k{n}", n) for n in range(10)])
    member(exit_at_end=True).wait()
    assert numbers(conn) == list(range(10))
    return small


def test_what_running_again_means_has_to_be_said(at_rest: Config) -> None:
    before = committed(at_rest)
    result = stream(at_rest, *TO_THE_BEGINNING, "--execute")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--repair   what was applied stays applied" in result.stderr
    assert "--reapply  handlers run once more" in result.stderr
    assert follow(at_rest, hints(result)[0]).exit_code == 0
    assert committed(at_rest) == before


def test_on_a_terminal_it_is_asked(at_rest: Config, environment: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    command = [STREAM, *TO_THE_BEGINNING, "--execute", "--project", str(at_rest.project)]
    process = subprocess.Popen(
        command, env=environment, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, text=True
    )
    os.close(theirs)
    said = b""
    while b"repair or reapply?" not in said:
        said += os.read(ours, 1000)
    os.write(ours, b"repair\n")
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert "GROUP" in out
    assert set(committed(at_rest).values()) == {0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "got none"),
        (["--to-earliest", "--to-latest"], "got --to-earliest, --to-latest"),
        (["--to-offset", "0", "--shift-by", "0"], "got --to-offset, --shift-by"),
        (["--to-earliest", "--topic", "things:9"], "things has partitions 0 to 1, got 9"),
        (["--to-earliest", "--topic", "testers.retry"], "does not read 'testers.retry'; it reads things"),
        (["--to-datetime", "yesterday"], "expected a time"),
        (["--by-duration", "2 hours"], "expected a duration"),
        (["--by-duration", "P999999D"], "there was no such time"),
        (["--to-group", "testers"], "is the group itself"),
        (["--to-earliest", "--repair", "--reapply"], "are two things"),
        (["--to-earliest", "--dry-run", "--execute"], "are two things"),
        (["--to-earliest", "--export", "--format", "json"], "prints CSV"),
        (["--from-file", "offsets.csv"], "reads no partition 'thingz'[0]"),
    ],
)
def test_what_is_typed_wrongly_is_refused(
    at_rest: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("offsets.csv").write_text("thingz,0,1\n")
    result = stream(at_rest, "rewind", "--group", "testers", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    unknown = stream(at_rest, "rewind", "--group", "tester", *words)
    assert (unknown.exit_code, unknown.stdout) == (2, "")


def test_without_broker_or_database_nothing_is_planned(at_rest: Config) -> None:
    nobody = f"127.0.0.1:{ports.choose(None)}"
    for config in (
        replace(at_rest, bootstrap_servers=nobody),
        replace(at_rest, database_url=f"postgresql://stream@{nobody}/stream"),
    ):
        result = stream(config, *REPAIR, "--format", "json")
        assert (result.exit_code, result.stdout) == (3, "")
        assert nobody in result.stderr


def test_a_plan_changes_nothing_and_its_command_is_what_was_shown(
    at_rest: Config, conn: psycopg.Connection[Any]
) -> None:
    before = committed(at_rest)
    plan = stream(at_rest, "rewind", "--group", "testers", "--by-duration", "PT1H", "--rate", "50/s")
    assert plan.exit_code == 0
    assert "10 records to read again; 10 of them are in the ledger" in plan.stderr
    assert "nothing was changed yet" in plan.stderr
    assert committed(at_rest) == before
    assert rows(conn, "select from stream.rewind") == []
    repair = hints(plan)[0]
    assert "--to-datetime 20" in repair and "--rate 50/s" in repair
    assert follow(at_rest, repair).exit_code == 0
    assert set(committed(at_rest).values()) == {0}


def test_how_much_is_in_the_ledger_is_not_claimed_where_it_was_not_counted(
    at_rest: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveys, "MOST_COUNTED", 0)
    plan = stream_json(at_rest, *TO_THE_BEGINNING)
    assert plan["total"] == 10 >= plan["looked_up"] == plan["in_ledger"]
    said = stream(at_rest, *TO_THE_BEGINNING).stderr
    assert re.search(r"10 records to read again; at least \d+ are in the ledger \(\d+ were looked up\)", said)


def test_a_repair_of_what_the_ledger_has_forgotten_is_refused(
    at_rest: Config, project: Project, member: Callable[..., Member], conn: psycopg.Connection[Any]
) -> None:
    conn.execute("delete from stream.ledger")
    conn.execute("update stream.group_state set ledger_pruned_before = clock_timestamp()")
    conn.commit()
    before = committed(at_rest)
    for words in ((*TO_THE_BEGINNING, "--reapply"), REPAIR, TO_THE_BEGINNING):
        result = stream(at_rest, *words)
        assert (result.exit_code, result.stdout) == (4, "")
        assert "would be applied twice" in result.stderr
    assert committed(at_rest) == before
    assert rows(conn, "select from stream.rewind") == []

    publish(at_rest, project, [("k", 10)])
    member(exit_at_end=True).wait()
    assert follow(at_rest, f"{hints(result)[-1]} --execute").exit_code == 0  # back to the first it remembers
    member(exit_at_end=True).wait()
    assert numbers(conn) == list(range(11))


def test_what_failed_is_shown_and_stays_what_it_is(
    small: Config, project: Project, member: Callable[..., Member], conn: psycopg.Connection[Any]
) -> None:
    def handler(event: Event, ctx: Context) -> None:
        if event.key == "dead":
            raise PermanentError("no lines")
        if event.key == "waiting":
            raise TransientError("not now")
        apply(event, ctx)

    keys = ["dead", "dead", "waiting", "waiting", "good", "good"]
    publish(small, project, [(key, n) for n, key in enumerate(keys)])
    running = member(handler)
    until(lambda: len(rows(conn, "select from stream.parked")) == 2)
    until(lambda: len(rows(conn, "select from stream.dead_letter")) == 2)
    until(lambda: sum(committed(small).values()) == 6)
    parked = 'select topic, partition, "offset", attempts, due_at from stream.parked order by 1, 2, 3'
    before = rows(conn, parked)

    plan = stream(small, *TO_THE_BEGINNING)
    assert "2 events of these wait or are held, and stay so" in plan.stderr
    assert "2 open letters of these: what is dead stays dead" in plan.stderr
    shown = stream_json(small, *REPAIR)
    assert (shown["parked"], shown["dead"], shown["in_ledger"], shown["total"]) == (2, 2, 4, 6)
    until(lambda: sum(committed(small).values()) == 6, 30, "all is read again")

    assert rows(conn, parked) == before
    assert len(rows(conn, "select from stream.dead_letter")) == 2
    assert numbers(conn) == [4, 5]
    assert running.running
    assert set(rows(conn, "select outcome, count(*) from stream.ledger group by 1")) == {
        ("done", 2),
        ("dead", 2),
    }


def test_reapply_says_what_becomes_of_what_failed(
    small: Config, project: Project, member: Callable[..., Member], conn: psycopg.Connection[Any]
) -> None:
    broken = True

    def handler(event: Event, ctx: Context) -> None:
        if broken and event.key == "dead":
            raise PermanentError("no lines")
        if broken and event.key == "waiting":
            raise TransientError("not now")
        apply(event, ctx)

    publish(small, project, [(key, n) for n, key in enumerate(["dead", "waiting", "good"])])
    running = member(handler)
    until(lambda: len(rows(conn, "select from stream.parked")) == 1)
    until(lambda: sum(committed(small).values()) == 3)
    broken = False
    result = stream(small, *TO_THE_BEGINNING, "--reapply", "--execute")
    assert result.exit_code == 0, result.output
    assert "1 event of these wait or are held, and are tried in their turn" in result.stderr
    assert "1 open letter of these: what is dead is tried again" in result.stderr
    until(lambda: len(numbers(conn)) == 4)
    assert numbers(conn) == [0, 1, 2, 2]
    assert rows(conn, "select status from stream.dead_letter") == [("superseded",)]
    assert rows(conn, "select from stream.parked") == []
    assert running.running


def test_a_group_that_is_there_already_is_left_alone(at_rest: Config, conn: psycopg.Connection[Any]) -> None:
    result = stream(at_rest, "rewind", "--group", "testers", "--to-latest", "--repair", "--execute")
    assert result.exit_code == 0
    assert "it is there already; nothing was changed" in result.stderr
    assert rows(conn, "select from stream.rewind") == []


def test_two_commands_do_not_move_one_group(at_rest: Config, conn: psycopg.Connection[Any]) -> None:
    before = committed(at_rest)
    conn.execute(
        "insert into stream.rewind (consumer_group, mode, who, gives_up_at)"
        " values ('testers', 'repair', 'another', clock_timestamp() + interval '1 hour')"
    )
    conn.execute("select pg_advisory_lock(%s, id) from stream.rewind", [LOCK_REWIND])
    conn.commit()
    result = stream(at_rest, *REPAIR)
    assert (result.exit_code, result.stdout) == (4, "")
    assert "is being rewound by another command" in result.stderr
    assert follow(at_rest, hints(result)[-1]).exit_code == 0
    assert committed(at_rest) == before

    conn.execute("select pg_advisory_unlock_all()")  # it was killed
    conn.commit()
    result = stream(at_rest, *REPAIR)
    assert result.exit_code == 0, result.output
    assert "rewind 1 by another" in result.stderr and "cut off before it moved anything" in result.stderr
    assert set(committed(at_rest).values()) == {0}


def test_members_wait_no_longer_than_a_rewind_said(
    small: Config, project: Project, member: Callable[..., Member], conn: psycopg.Connection[Any]
) -> None:
    """A command that hangs holds its lock, and would hold the group for ever."""
    conn.execute(
        "insert into stream.rewind (consumer_group, mode, who, gives_up_at)"
        " values ('testers', 'repair', 'another', clock_timestamp() + interval '1 hour')"
    )
    conn.execute("select pg_advisory_lock(%s, id) from stream.rewind", [LOCK_REWIND])
    conn.commit()
    publish(small, project, [("a", 0)])
    waiting = member()
    until(lambda: rows(conn, "select 1 from stream.worker where made_way_for is not null"))
    assert numbers(conn) == []
    conn.execute("update stream.rewind set gives_up_at = clock_timestamp()")
    conn.commit()
    until(lambda: numbers(conn) == [0])
    waiting.end()
