"""`stream rewind --execute` on a group that is at work: no restart, nothing lost, nothing doubled."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from stream.config import Config
from stream.failpoints import NAMES
from stream.project import Project
from tests.support.cli import follow, hints, stream, stream_json
from tests.support.effects import Effects, Load, committed, consume, effect_project, migrate
from tests.support.processes import Command, run
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

STEPS = (
    *("rewind.asked", "rewind.away", "rewind.saved", "rewind.planned"),
    *("rewind.moved", "rewind.settled", "rewind.ended"),
)
BACK = ("rewind", "--group", "testers", "--to-earliest", "--repair", "--execute")


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str]) -> Project:
    project = effect_project(tmp_path / "shop")
    migrate(project, environment)
    return project


@pytest.fixture
def here(config: Config, project: Project) -> Config:
    return replace(config, project=project.root)


@pytest.fixture
def stranger(config: Config) -> Iterator[Callable[[], Consumer]]:
    """Makes a member of the group that is no process of ours."""
    made: list[Consumer] = []

    def join() -> Consumer:
        settings = {
            "bootstrap.servers": config.bootstrap_servers,
            "group.id": config.prefix + "testers",
            "group.protocol": "consumer",
            "client.id": "a stranger",
            "enable.auto.commit": False,
        }
        made.append(Consumer(settings))
        made[-1].subscribe([config.prefix + "things"])
        until(lambda: made[-1].poll(0.1) is not None or made[-1].assignment(), 30, "the stranger joined")
        return made[-1]

    yield join
    for each in made:
        each.close()


def ledger(conn: psycopg.Connection[Any]) -> int:
    [(count,)] = conn.execute("select count(*) from stream.ledger").fetchall()
    conn.commit()
    return int(count)


def rewinds(conn: psycopg.Connection[Any]) -> list[str | None]:
    rows = conn.execute("select result from stream.rewind order by id").fetchall()
    conn.commit()
    return [result for (result,) in rows]


def test_a_group_is_moved_under_load_without_a_restart(
    here: Config,
    project: Project,
    environment: dict[str, str],
    effects: Effects,
    conn: psycopg.Connection[Any],
) -> None:
    with Load(here, project) as load:
        members = [consume(project, environment) for _ in range(2)]
        until(lambda: effects.count() > 200, 60)
        command = run(*BACK, "--format", "json", env=environment, cwd=project.root)
        assert command.wait() == 0, command.stderr
        assert '"old": null' not in command.stdout and '"new": 0' in command.stdout
        for member in members:
            member.says("group.comes_back", 60)
            [line] = [line for line in member.stderr.splitlines() if "group.comes_back" in line]
            assert '"result": "moved"' in line
        load.wait(100)
        assert all(member.running for member in members)
        words = ("rewind", "--group=testers", "--shift-by=-5", "--repair", "--execute")
        mid = run(*words, env=environment, cwd=project.root)
        assert mid.wait() == 0, mid.stderr
        load.wait(50)
    until(lambda: effects.count() >= load.count, 60, "all that was published is applied")
    assert [member.stop() for member in members] == [0, 0]

    effects.check(load.published)
    assert rewinds(conn) == ["moved", "moved"]
    actions = conn.execute("select action, target, result from stream.operator_action").fetchall()
    assert actions == [("rewind", "testers", "moved")] * 2


def test_a_strangers_presence_refuses_it_and_disturbs_nobody(
    here: Config,
    project: Project,
    environment: dict[str, str],
    effects: Effects,
    conn: psycopg.Connection[Any],
    stranger: Callable[[], Consumer],
) -> None:
    with Load(here, project) as load:
        load.wait(50)
    first = consume(project, environment, at_end=True)
    assert first.wait() == 0, first.stderr
    before = committed(here)
    member = consume(project, environment)
    member.says("partitions.assigned")
    stranger()

    result = stream(here, *BACK)

    assert (result.exit_code, result.stdout) == (4, "")
    assert "'a stranger' at" in result.stderr
    assert "nothing was changed" in result.stderr
    assert committed(here) == before
    assert rewinds(conn) == []
    assert "makes_way" not in member.stderr
    assert not list((project.root / ".stream").glob("undo/*"))
    assert follow(here, hints(result)[-1]).exit_code == 0
    assert member.stop() == 0
    effects.check(load.published)


def test_a_member_that_does_not_make_way_refuses_it_and_the_others_go_on(
    here: Config,
    project: Project,
    environment: dict[str, str],
    effects: Effects,
    conn: psycopg.Connection[Any],
) -> None:
    with Load(here, project) as load:
        frozen, member = consume(project, environment), consume(project, environment)
        until(lambda: effects.count() > 50, 60)
        until(lambda: all("partitions.assigned" in each.stderr for each in (frozen, member)))
        frozen.send(signal.SIGSTOP)
        result = stream(here, *BACK, "--wait", "2s")
        frozen.send(signal.SIGCONT)
        assert (result.exit_code, result.stdout) == (4, "")
        assert f"-{frozen.pid}-testers" in result.stderr and f"-{member.pid}-testers" not in result.stderr
        member.says("group.comes_back")
        load.wait(50)
    until(lambda: effects.count() >= load.count, 60, "all that was published is applied")
    assert [each.stop() for each in (frozen, member)] == [0, 0]
    effects.check(load.published)
    assert rewinds(conn) == ["refused"]


def test_undo_restores_exactly(
    here: Config, project: Project, environment: dict[str, str], effects: Effects
) -> None:
    with Load(here, project) as load:
        load.wait(100)
    assert consume(project, environment, at_end=True).wait() == 0
    before = committed(here)

    moved = run(*BACK, env=environment, cwd=project.root)
    assert moved.wait() == 0, moved.stderr
    assert committed(here) == dict.fromkeys(before, 0)
    undo = next(line.split(": ", 1)[1] for line in moved.stderr.splitlines() if line.startswith("undo: "))
    back = stream(here, "rewind", "--group", "testers", "--from-file", undo, "--repair", "--execute")

    assert back.exit_code == 0, back.output
    assert committed(here) == before
    assert len(before) == 4
    effects.check(load.published)


def test_repair_runs_only_what_the_ledger_does_not_have(
    here: Config,
    project: Project,
    environment: dict[str, str],
    effects: Effects,
    conn: psycopg.Connection[Any],
) -> None:
    with Load(here, project) as load:
        load.wait(200)
    assert consume(project, environment, at_end=True).wait() == 0
    lost = conn.execute("delete from effect where n % 3 = 0 returning event_id, key, n").fetchall()
    conn.execute("delete from stream.ledger where event_id = any (%s)", [[id for id, *_ in lost]])
    conn.commit()
    kept = effects.fetch("select max(seq) from effect")[0][0]
    total = load.count + load.doubles

    plan = stream_json(here, "rewind", "--group", "testers", "--to-earliest", "--repair")
    assert (plan["total"], plan["looked_up"], plan["mode"]) == (total, total, "repair")
    doubled = len({id for id, *_ in lost})
    assert total - doubled - load.doubles <= plan["in_ledger"] < total
    for _ in range(2):  # the second finds nothing to do
        assert stream(here, *BACK).exit_code == 0
        assert consume(project, environment, at_end=True).wait() == 0

    again = effects.fetch("select event_id, key, n from effect where seq > %s", kept)
    assert sorted(again, key=str) == sorted(lost, key=str)
    assert {key: sorted(numbers) for key, numbers in effects.by_key().items()} == load.published


def test_a_command_killed_at_any_step_leaves_the_offsets_all_old_or_all_new(
    here: Config, project: Project, environment: dict[str, str], conn: psycopg.Connection[Any]
) -> None:
    assert set(STEPS) == {name for name in NAMES if name.startswith("rewind.")}
    with Load(here, project) as load:
        load.wait(100)
    assert consume(project, environment, at_end=True).wait() == 0
    old = committed(here)
    for step in STEPS:
        command = killed_at(step, project, environment)
        assert command.wait() == -signal.SIGKILL, command.stderr
        new = step in ("rewind.moved", "rewind.settled", "rewind.ended")
        assert committed(here) == (dict.fromkeys(old, 0) if new else old), step
        said = stream(here, "rewind", "--group", "testers", "--to-current").stderr
        assert ("was cut off" in said) == (step != "rewind.ended"), step
        if new:
            undo = max((project.root / ".stream" / "undo").iterdir(), key=lambda path: path.stat().st_mtime)
            assert str(undo) in said or step == "rewind.ended"
            back = stream(here, "rewind", "--group=testers", f"--from-file={undo}", "--repair", "--execute")
            assert back.exit_code == 0, back.output
            assert committed(here) == old
    assert rewinds(conn) == [*["cut off"] * 5, "moved", "cut off", "moved", "moved", "moved"]

    assert killed_at("rewind.asked", project, environment).wait() == -signal.SIGKILL
    stay = ("rewind", "--group", "testers", "--to-current")
    assert "was cut off" in stream(here, *stay, "--repair", "--execute").stderr
    assert "was cut off" not in stream(here, *stay).stderr


def test_a_command_killed_at_any_step_leaves_a_running_group_running(
    here: Config, project: Project, environment: dict[str, str], effects: Effects
) -> None:
    with Load(here, project) as load:
        member = consume(project, environment)
        until(lambda: effects.count() > 50, 60)
        for step in STEPS:
            before = member.stderr.count("group.comes_back")
            command = killed_at(step, project, environment)
            assert command.wait() == -signal.SIGKILL, command.stderr
            if step != "rewind.asked":  # so short that it may not have been heard of
                until(partial(back_again, member, before), 60, f"back after {step}")
            load.wait(20)
        second = consume(project, environment)
        second.says("partitions.assigned")
    until(lambda: effects.count() >= load.count, 60, "all that was published is applied")
    assert [each.stop() for each in (member, second)] == [0, 0]
    effects.check(load.published)


def test_a_member_that_starts_meanwhile_waits_until_it_is_over(
    here: Config, project: Project, environment: dict[str, str], effects: Effects
) -> None:
    with Load(here, project) as load:
        load.wait(100)
    assert consume(project, environment, at_end=True).wait() == 0
    frozen = killed_at("rewind.away", project, environment, "stop")
    conn = psycopg.connect(here.database_url, autocommit=True)
    with conn:
        until(lambda: conn.execute("select stream.recess('testers')").fetchone() != (None,))
        member = consume(project, environment)
        until(
            lambda: conn.execute("select 1 from stream.worker where made_way_for is not null").fetchone(),
            30,
            lambda: member.stderr,
        )
        assert "partitions.assigned" not in member.stderr
        frozen.send(signal.SIGCONT)
        assert frozen.wait() == 0, frozen.stderr
    member.says("partitions.assigned")
    assert member.stop() == 0
    effects.check(load.published)


def back_again(member: Command, before: int) -> bool:
    return member.stderr.count("group.comes_back") > before


@pytest.mark.parametrize(("step", "code"), [("rewind.away", 3), ("rewind.planned", 4)])
def test_a_command_that_lost_its_session_is_not_waited_for_and_moves_nothing(
    here: Config, project: Project, environment: dict[str, str], effects: Effects, step: str, code: int
) -> None:
    """The members are back when it goes on: what it does not learn of the database, the broker tells it."""
    with Load(here, project) as load:
        member = consume(project, environment)
        until(lambda: effects.count() > 50, 60)
        frozen = killed_at(step, project, environment, "stop")
        until(lambda: "group.makes_way" in member.stderr, 60)
        until(lambda: stopped(frozen), 60, "the command stands still")
        ended = (
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'stream-rewind'"
        )
        assert effects.fetch(ended + " and datname = current_database()") == [(True,)]
        member.says("group.comes_back")
        until(lambda: member.stderr.count("partitions.assigned") == 2)
        frozen.send(signal.SIGCONT)
        assert frozen.wait() == code, frozen.stderr
        load.wait(20)
    until(lambda: effects.count() >= load.count, 60, "all that was published is applied")
    assert member.stop() == 0
    effects.check(load.published)
    assert all(offset > 0 for offset in committed(here).values())


def test_a_process_killed_a_moment_ago_is_waited_for_until_the_broker_knows(
    here: Config, project: Project, environment: dict[str, str], effects: Effects
) -> None:
    with Load(here, project) as load:
        load.wait(100)
    member = consume(project, environment)
    until(lambda: effects.count() == load.count)
    member.kill()
    result = stream(here, *BACK)
    assert result.exit_code == 0, result.output
    assert set(committed(here).values()) == {0}
    assert consume(project, environment, at_end=True).wait() == 0
    effects.check(load.published)


def test_what_somebody_else_moved_meanwhile_is_found_when_it_is_read_back(
    here: Config, project: Project, environment: dict[str, str]
) -> None:
    with Load(here, project) as load:
        load.wait(100)
    assert consume(project, environment, at_end=True).wait() == 0
    before = committed(here)
    frozen = killed_at("rewind.moved", project, environment, "stop")
    until(lambda: stopped(frozen), 60, "the command stands still")
    other = Consumer({"bootstrap.servers": here.bootstrap_servers, "group.id": here.prefix + "testers"})
    other.commit(offsets=[TopicPartition(here.prefix + "things", 2, 1)], asynchronous=False)
    other.close()
    frozen.send(signal.SIGCONT)

    assert frozen.wait() == 6
    assert "not all is where it should be: things[2] at 1, not 0" in frozen.stderr
    [hint] = [line[3:] for line in frozen.stderr.splitlines() if "--from-file" in line]
    assert follow(here, f"{hint} --repair --execute").exit_code == 0
    assert committed(here) == before


def stopped(command: Command) -> bool:
    return Path(f"/proc/{command.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def killed_at(step: str, project: Project, env: dict[str, str], action: str = "kill") -> Command:
    return Command(*BACK, env={**env, "STREAM_FAILPOINTS": f"{step}={action}"}, cwd=project.root)
