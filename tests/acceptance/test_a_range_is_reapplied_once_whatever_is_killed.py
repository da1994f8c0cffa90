"""`stream rewind --reapply`: each effect of the range once more, once; with SIGKILL at each step of both sides."""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from stream.failpoints import NAMES
from stream.project import Project
from tests.support.cli import stream
from tests.support.effects import Effects, Load, committed, consume, effect_project, migrate, write_group
from tests.support.processes import Command, run
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

ALL = ("rewind", "--group", "testers", "--to-earliest", "--reapply", "--execute")
COMMAND_STEPS = sorted(name for name in NAMES if name.startswith("rewind."))
# Each step, the how manieth time it is reached, and the events in a transaction; as in the test of first runs.
WORKER_STEPS = [
    *(("consume.claimed", 20, 1), ("consume.claimed", 3, 10), ("consume.handled", 20, 1)),
    *(("consume.handled", 3, 10), ("consume.before_commit", 20, 1), ("consume.before_commit", 3, 10)),
    *(("consume.after_commit", 20, 1), ("consume.after_commit", 3, 10)),
    *(("consume.before_offset_commit", 1, 1), ("consume.after_offset_commit", 1, 1)),
]


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str]) -> Project:
    project = effect_project(tmp_path / "shop")
    migrate(project, environment)
    return project


@pytest.fixture
def here(config: Config, project: Project) -> Config:
    return replace(config, project=project.root)


def applied(load: Load, times: int) -> dict[str, list[int]]:
    return {key: numbers * times for key, numbers in load.published.items()}


def states(conn: psycopg.Connection[Any]) -> list[tuple[int, str]]:
    rows = conn.execute("select distinct epoch, status from stream.reapply order by 1").fetchall()
    conn.commit()
    return rows


def test_a_command_killed_at_any_step_is_finished_or_has_done_nothing(
    here: Config,
    project: Project,
    environment: dict[str, str],
    effects: Effects,
    conn: psycopg.Connection[Any],
) -> None:
    with Load(here, project) as load:
        load.wait(100)
    assert consume(project, environment, at_end=True).wait() == 0
    times = 1
    for step in COMMAND_STEPS:
        command = Command(*ALL, env={**environment, "STREAM_FAILPOINTS": f"{step}=kill"}, cwd=project.root)
        assert command.wait() == -signal.SIGKILL, command.stderr
        moved = step in ("rewind.moved", "rewind.settled", "rewind.ended")
        times += moved
        # The group's next process that reads, or the next command, makes true what became of it.
        assert consume(project, environment, at_end=True).wait() == 0
        effects.check(applied(load, times))
        if step in ("rewind.moved", "rewind.settled"):  # who types it again means the same one
            second = run(*ALL, env=environment, cwd=project.root)
            assert second.wait() == 4 and "did move the offsets" in second.stderr, second.stderr
    again = run(*ALL, env=environment, cwd=project.root)
    assert again.wait() == 0, again.stderr
    assert consume(project, environment, at_end=True).wait() == 0
    effects.check(applied(load, times + 1))
    assert [status for _, status in states(conn)] == [
        "done"
    ] * times  # an epoch for each time after the first


def test_a_worker_killed_at_any_step_applies_each_event_once_more(
    here: Config, config: Config, project: Project, environment: dict[str, str], effects: Effects
) -> None:
    groups = {(step, nth, batch): f"{step}-{batch}" for step, nth, batch in WORKER_STEPS}
    for (_, _, batch), group in groups.items():
        write_group(project, group, batch=batch, concurrency=3)
    migrate(project, environment)
    with Load(config, project) as load:
        load.wait(150)
    once = consume(project, environment, *groups.values(), at_end=True)
    assert once.wait() == 0, once.stderr
    untouched = committed(here)

    names = [word for group in groups.values() for word in ("--group", group)]
    words = ("rewind", *names, "--to-earliest", "--reapply", "--execute")
    moved = run(*words, env=environment, cwd=project.root)
    assert moved.wait() == 0, moved.stderr
    killed = [
        consume(project, environment, group, failpoints=f"{step}=kill@{nth}")
        for (step, nth, _), group in groups.items()
    ]
    for command in killed:
        assert command.wait() == -signal.SIGKILL, (command.arguments, command.stderr)
    again = consume(project, environment, *groups.values(), at_end=True)
    assert again.wait() == 0, again.stderr
    for group in groups.values():
        effects.check(applied(load, 2), group)
    assert committed(here) == untouched


def test_a_group_at_work_is_reapplied_without_a_restart(
    here: Config,
    project: Project,
    environment: dict[str, str],
    effects: Effects,
    conn: psycopg.Connection[Any],
) -> None:
    with Load(here, project) as load:
        members = [consume(project, environment) for _ in range(2)]
        until(lambda: effects.count() > 200, 60)
        command = run(*ALL, env=environment, cwd=project.root)
        assert command.wait() == 0, command.stderr
        load.wait(100)
    [(extra,)] = conn.execute(
        "select count(*) from stream.ledger where epoch = 1 and event_id in"
        " (select event_id from effect group by event_id having count(*) > 1)"
    ).fetchall()
    conn.commit()
    until(lambda: twice(effects) and effects.count() == load.count + sum(twice(effects).values()), 60)
    assert [member.stop() for member in members] == [0, 0]
    assert all("group.comes_back" in member.stderr for member in members)
    assert extra > 0
    for key, found in effects.by_key().items():
        counts = Counter(found)
        assert set(counts) == set(load.published[key]) and set(counts.values()) <= {1, 2}
        last = {n: at for at, n in enumerate(found)}
        # What was applied before the rewind is a beginning of the key's events, and so is what came again.
        again = [n for n in load.published[key] if counts[n] == 2]
        assert again == load.published[key][: len(again)]
        assert [n for _, n in sorted((at, n) for n, at in last.items())] == load.published[key]


def twice(effects: Effects) -> dict[str, int]:
    """How many events of each key were applied twice."""
    query = (
        "select key, count(*) from (select key, n from effect group by 1, 2 having count(*) > 1) t group by 1"
    )
    return dict(effects.fetch(query))


def test_undo_in_the_middle_runs_no_more_again(
    here: Config, project: Project, environment: dict[str, str], effects: Effects
) -> None:
    with Load(here, project) as load:
        load.wait(200)
    assert consume(project, environment, at_end=True).wait() == 0
    before = committed(here)
    moved = run(*ALL, env=environment, cwd=project.root)
    assert moved.wait() == 0, moved.stderr
    undo = next(line.split(": ", 1)[1] for line in moved.stderr.splitlines() if line.startswith("undo: "))
    some = consume(project, environment, failpoints="consume.after_commit=kill@50")
    assert some.wait() == -signal.SIGKILL
    back = stream(here, "rewind", "--group", "testers", "--from-file", undo, "--repair", "--execute")
    assert back.exit_code == 0, back.output
    assert committed(here) == before
    count = effects.count()
    assert load.count < count < 2 * load.count
    for words in ((), ("rewind", "--group", "testers", "--to-earliest", "--repair", "--execute")):
        if words:
            assert stream(here, *words).exit_code == 0
        assert consume(project, environment, at_end=True).wait() == 0
        assert effects.count() == count
