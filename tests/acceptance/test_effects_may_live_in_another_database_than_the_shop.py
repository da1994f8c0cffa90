"""The shop's outbox in one database, a group's effects in another: what the group emits leaves by its own outbox."""

from collections.abc import Callable
from pathlib import Path

import psycopg

from stream import Outbox
from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate
from tests.support.processes import run
from tests.support.topics import read_all

WAITING = "select count(*) from stream.outbox"
APPLIED = "select count(*) from stream.ledger"


def test_effects_may_live_in_another_database_than_the_shop(
    tmp_path: Path, config: Config, environment: dict[str, str], new_database: Callable[[], str]
) -> None:
    echo = 'ctx.emit("Echoed", key=event.key, data={"n": event.data["n"]})'
    project = effect_project(tmp_path / "shop", after=echo, batch=5)
    shop, ours = environment, {**environment, "DATABASE_URL": new_database()}
    migrate(project, shop)
    migrate(project, ours)

    with psycopg.connect(shop["DATABASE_URL"]) as conn:
        Outbox(project).append_many(
            conn, [{"type": "Happened", "key": f"k{n % 4}", "data": {"n": n}} for n in range(20)]
        )
    assert run("relay", "--once", env=shop, cwd=project.root).wait() == 0
    applied = consume(project, ours, at_end=True)
    assert applied.wait() == 0, applied.stderr

    there, here = Effects(shop["DATABASE_URL"]), Effects(ours["DATABASE_URL"])
    here.check({f"k{k}": list(range(k, 20, 4)) for k in range(4)})
    assert (there.count(), there.fetch(APPLIED), there.fetch(WAITING)) == (0, [(0,)], [(0,)])
    assert (here.fetch(APPLIED), here.fetch(WAITING)) == ([(20,)], [(20,)])

    assert run("relay", "--once", env=ours, cwd=project.root).wait() == 0
    assert here.fetch(WAITING) == [(0,)]
    echoed = [project.codec.decode(record.value() or b"") for record in read_all(config, "echoes")]
    assert sorted(data["n"] for _, data in echoed) == list(range(20))
    there.close()
    here.close()
