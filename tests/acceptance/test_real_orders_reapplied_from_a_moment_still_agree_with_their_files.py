"""Real orders imported in two halves, the groups reapplied from the moment between: the sums agree with the files."""

import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from stream.demo.provider import MailProvider
from tests.support.effects import committed
from tests.support.processes import Command, run
from tests.support.retail import Expected, folder
from tests.support.topics import read_all
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ("invoicing", "email", "stock")


def halves(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Two folders of two days each, and one of all four."""
    files, _ = folder(tmp_path / "made-up")
    days = sorted(files.glob("*.csv"))[:4]
    folders = [tmp_path / name for name in ("first", "second", "whole")]
    for each, some in zip(folders, (days[:2], days[2:], days), strict=True):
        each.mkdir()
        for day in some:
            shutil.copy(day, each)
    return folders[0], folders[1], folders[2]


def fetch(conn: psycopg.Connection[Any], query: str) -> list[Any]:
    conn.rollback()
    return conn.execute(query.encode()).fetchall()


def import_(files: Path, expected: Expected, env: dict[str, str], conn: psycopg.Connection[Any]) -> None:
    """Place the orders, and let every group come to its end with them. `expected`: of all until now."""
    assert run("demo", "place", "--csv", str(files), env=env, cwd=ROOT).wait() == 0
    documents = len(expected.totals)
    placed, returned, adjusted = (expected.kinds[kind] for kind in ("placed", "returned", "adjusted"))
    relay = Command("relay", env=env, cwd=ROOT)
    groups = Command("consume", *(f"--group={group}" for group in GROUPS), env=env, cwd=ROOT)

    def settled() -> bool:
        [(waiting,)] = fetch(
            conn, "select (select count(*) from stream.outbox) + (select count(*) from stream.scheduled)"
        )
        counts = dict(fetch(conn, "select consumer_group, count(*) from stream.ledger group by 1"))
        return (
            waiting == 0
            and counts.get("invoicing") == placed + returned
            and counts.get("email") == placed + documents
            and counts.get("stock", 0) >= placed + returned + adjusted
        )

    until(settled, 120, lambda: f"{relay.stderr[-2000:]}\n{groups.stderr[-2000:]}")
    assert groups.stop() == 0
    drain(env)
    until(settled, 30, "nothing is left to do")
    assert relay.stop() == 0


def drain(env: dict[str, str]) -> None:
    at_end = run("consume", *(f"--group={group}" for group in GROUPS), "--exit-at-end", env=env, cwd=ROOT)
    assert at_end.wait() == 0, at_end.stderr


def test_real_orders_reapplied_from_a_moment_still_agree_with_their_files(
    config: Config,
    env: dict[str, str],
    provider: MailProvider,
    conn: psycopg.Connection[Any],
    tmp_path: Path,
) -> None:
    first, second, whole = halves(tmp_path)
    expected = Expected(whole)
    assert run("migrate", env=env, cwd=ROOT).wait() == 0
    import_(first, Expected(first), env, conn)
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    import_(second, expected, env, conn)
    topics = ("orders", "invoices", "stock")
    before = {topic: len(read_all(config, topic)) for topic in topics}
    mails = len(provider.mails)
    numbers = fetch(conn, "select order_id, kind, number from invoice order by 1, 2")
    counts = Counter(dict(fetch(conn, "select consumer_group, count(*) from stream.ledger group by 1")))

    for group in GROUPS:
        others = {other: committed(config, "orders", other) for other in GROUPS if other != group}
        words = ("rewind", "--group", group, "--to-datetime", moment, "--reapply", "--execute")
        moved = run(*words, env=env, cwd=ROOT)
        assert moved.wait() == 0, moved.stderr
        assert {other: committed(config, "orders", other) for other in others} == others
        drain(env)

    again = dict(fetch(conn, "select consumer_group, count(*) from stream.ledger where epoch = 1 group by 1"))
    assert again.keys() == set(GROUPS)
    late = Expected(second)
    assert again["invoicing"] == late.kinds["placed"] + late.kinds["returned"]
    skipped = "select count(*) from stream.ledger where epoch = 1 and consumer_group = 'email' and outcome = 'skipped'"
    assert fetch(conn, skipped) == [(again["email"],)]
    assert counts == Counter(
        dict(fetch(conn, "select consumer_group, count(*) from stream.ledger where epoch = 0 group by 1"))
    )

    # The truth, and nothing twice.
    assert dict(fetch(conn, "select sku, on_hand from stock_level")) == dict(expected.levels)
    totals = fetch(conn, "select order_id, kind, total_minor from invoice")
    assert {(order_id, kind): total for order_id, kind, total in totals} == expected.totals
    assert fetch(conn, "select order_id, kind, number from invoice order by 1, 2") == numbers
    assert len(provider.mails) == mails == len(expected.mails)
    assert {topic: len(read_all(config, topic)) for topic in topics} == before
    waiting = "select (select count(*) from stream.outbox) + (select count(*) from stream.scheduled)"
    assert fetch(conn, waiting) == [(0,)]
