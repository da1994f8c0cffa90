"""A thousand dead letters replayed at 50 a second, killed once, interrupted once and continued: each once, in order
per key, at the rate; what dies again is counted, and not replayed in the same run."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.groups import publish
from tests.support.processes import Command
from tests.support.waiting import until

pytestmark = pytest.mark.soak

CAUSE = "create table trouble (key text primary key)"
# The effect first: what a failed try wrote must be gone.
FAIL = """if ctx.db.execute("select from trouble where key = %s", [event.key]).rowcount:
        raise LookupError(f"no price for {event.key}")"""
KEYS, EACH, RATE = 200, 5, 50


def replayed(effects: Effects) -> int:
    return int(effects.fetch("select count(*) from stream.dead_letter where status = 'replayed'")[0][0])


@pytest.mark.timeout(180)
def test_each_letter_is_replayed_once_at_the_rate_and_in_order(
    tmp_path: Path,
    config: Config,
    environment: dict[str, str],
    effects: Effects,
    conn: psycopg.Connection[Any],
) -> None:
    project = effect_project(tmp_path / "shop", after=FAIL, attempts=1)
    migrate(project, environment)
    conn.execute(CAUSE)
    conn.execute("insert into trouble select 'k' || n from generate_series(0, %s) n", [KEYS - 1])
    conn.commit()
    publish(config, project, [(f"k{key}", n) for n in range(EACH) for key in range(KEYS)])
    relay = Command("relay", env=environment, cwd=project.root)
    worker = consume(project, environment)
    until(
        lambda: effects.fetch("select count(*) from stream.dead_letter") == [(KEYS * EACH,)],
        60,
        lambda: worker.stderr[-3000:],
    )
    [(bad,)] = effects.fetch("select convert_from(key, 'UTF8') from stream.dead_letter order by id limit 1")
    conn.execute("delete from trouble where key <> %s", [bad])
    conn.commit()

    # The plan changes nothing, and names the last letter; what dies later is not among them.
    plan = Command(
        "dlq", "replay", "--group", "testers", f"--rate={RATE}/s", env=environment, cwd=project.root
    )
    assert plan.wait() == 0
    command = next(line for line in plan.stderr.splitlines() if line.startswith("-> "))[3:]
    assert command == f"stream dlq replay --group testers --up-to {KEYS * EACH} --rate {RATE}/s --execute"
    assert replayed(effects) == 0

    killed = Command(*shlex.split(command)[1:], env=environment, cwd=project.root)
    until(lambda: replayed(effects) >= 40, 30, lambda: killed.stderr)
    killed.kill()
    again = "select count(*) from stream.dead_letter where replays = 1 and status = 'open'"
    until(lambda: effects.fetch(again) == [(EACH,)], 30, lambda: worker.stderr[-3000:])
    before = replayed(effects)

    stopped = Command(*shlex.split(command)[1:], env=environment, cwd=project.root)
    until(lambda: replayed(effects) >= before + 60, 30, lambda: stopped.stderr)
    stopped.send(signal.SIGINT)
    assert stopped.wait() == 6, stopped.stderr
    between = replayed(effects)
    assert f"{between - before} replayed, of {KEYS * EACH - before}" in stopped.stderr
    assert f"stopped; {KEYS * EACH - between} of {KEYS * EACH - before} letters left" in stopped.error
    assert stopped.stderr.splitlines()[-1] == f"-> {command}"

    finished = Command(*shlex.split(command)[1:], env=environment, cwd=project.root)
    assert finished.wait() == 0, finished.stderr
    left = KEYS * EACH - between
    assert f"{left} replayed, of {left}" in finished.stderr

    good = {f"k{key}": list(range(EACH)) for key in range(KEYS) if f"k{key}" != bad}
    until(lambda: effects.count() == len(good) * EACH, 30, lambda: worker.stderr[-3000:])
    until(lambda: effects.fetch("select count(*) from stream.parked") == [(0,)])
    effects.check(good)
    assert effects.fetch("select count(*), max(replays) from stream.dead_letter where status = 'open'") == [
        (EACH, 1)
    ]
    assert replayed(effects) == KEYS * EACH  # those that died again are letters of their own, and not touched

    acts = effects.fetch(
        "select count(*), count(distinct target) from stream.operator_action where action = 'dlq replay'"
    )
    assert acts == [(KEYS * EACH, KEYS * EACH)]
    times = effects.fetch(
        "select extract(epoch from resolved_at)::float8 from stream.dead_letter where status = 'replayed' order by 1"
    )
    starts = [at for (at,) in times]
    most = max(sum(start <= other < start + 1 for other in starts) for start in starts)
    assert most <= RATE + 1  # turns are a fiftieth apart; what is written is some milliseconds after its turn
    last = starts[between:]
    assert (len(last) - 1) / (last[-1] - last[0]) >= RATE / 2

    # In a run that sees it through, what dies again is counted.
    once_more = Command(
        "dlq", "replay", "--group", "testers", "--rate", "2/s", "--execute", env=environment, cwd=project.root
    )
    assert once_more.wait() == 0, once_more.stderr
    said = next(line for line in once_more.stderr.splitlines() if f", of {EACH}: they run again" in line)
    dead = int(said.split(" died again")[0].split(", ")[-1])
    assert 1 <= dead <= EACH  # the last may die a moment later
    until(
        lambda: effects.fetch("select max(replays) from stream.dead_letter where status = 'open'") == [(2,)]
    )
    assert effects.fetch("select count(*) from stream.dead_letter where status = 'open' and replays = 1") == [
        (0,)
    ]
    assert (worker.stop(), relay.stop()) == (0, 0)
