"""A new group finds the whole history, without a word to the producer or the other groups: one file and its table."""

import hashlib
import shutil
from pathlib import Path

import psycopg
import pytest

from stream import Outbox, app
from stream.config import Config
from stream.project import Project
from tests.support.orders import an_order
from tests.support.processes import Command, run

ROOT = Path(__file__).resolve().parents[2]

LOYALTY = '''
"""Loyalty: a point for every pound."""

from stream import ConsumerGroup, Context, Event

group = ConsumerGroup("loyalty", topics=["orders"], start="beginning", batch=100)


@group.on("OrderPlaced")
def give_points(event: Event, ctx: Context) -> None:
    points = sum(int(line["quantity"] * line["unit_price"]) for line in event.data["lines"])
    ctx.db.execute("insert into points values (%s, %s)", [event.key, points])
'''
POINTS = "create table if not exists points (order_id text, points int)"


def hashes(root: Path) -> dict[str, str]:
    """The content of every file below, but for what Python compiles."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture
def shop(tmp_path: Path, config: Config) -> Path:
    """A copy of this project with 30 orders placed, published, and applied by the group stock."""
    root = tmp_path / "shop"
    for folder in ("consumers", "schemas"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    project = Project(root)
    app.migrate(config, project)
    with psycopg.connect(config.database_url) as conn:
        Outbox(project).append_many(
            conn,
            [{"type": "OrderPlaced", "key": f"order-{n}", "data": an_order()} for n in range(30)],
        )
    return root


def test_adding_a_group_is_one_new_file(
    shop: Path, environment: dict[str, str], conn: psycopg.Connection[tuple[object, ...]]
) -> None:
    def stream(*words: str) -> Command:
        command = run(*words, env=environment, cwd=shop)
        assert command.wait() == 0, command.stderr
        return command

    stream("relay", "--once")
    stream("consume", "--group", "stock", "--exit-at-end")
    before = hashes(shop)

    (shop / "consumers" / "loyalty.py").write_text(LOYALTY)
    (shop / "consumers" / "loyalty.sql").write_text(POINTS)
    stream("migrate")
    started = stream("consume", "--group", "loyalty", "--exit-at-end")

    assert conn.execute("select order_id, points from points order by 1").fetchall() == sorted(
        (f"order-{n}", 15) for n in range(30)
    )
    assert '"will_act_on": 30' in started.stderr  # the first start says what it begins with
    assert {name: hashes(shop).get(name) for name in before} == before
    assert hashes(shop).keys() - before == {"consumers/loyalty.py", "consumers/loyalty.sql"}
    counts = dict(conn.execute("select consumer_group, count(*) from stream.ledger group by 1").fetchall())
    assert counts == {"stock": 30, "loyalty": 30}
