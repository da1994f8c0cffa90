"""The engine alone commits: a handler that does is named, and nothing of it stays."""

from pathlib import Path

from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate, write_group
from tests.support.groups import publish

GROUPS = [(call, batch) for call in ("commit", "rollback", "close") for batch in (1, 10)]


def test_a_handler_that_ends_its_transaction_is_told_so(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    project = effect_project(tmp_path / "shop")
    groups = [f"{call}-{batch}" for call, batch in GROUPS]
    for group, (call, batch) in zip(groups, GROUPS, strict=True):
        write_group(project, group, after=f"ctx.db.{call}() if event.key == 'bad' else None", batch=batch)
    migrate(project, environment)
    publish(config, project, [(key, n) for n in range(3) for key in ("good", "bad", "better")])
    command = consume(project, environment, *groups, at_end=True)
    assert command.wait() == 6, command.stderr
    for call, _ in GROUPS:
        assert f"ctx.db.{call}(): a handler must not end its transaction" in command.stderr
    for group in groups:
        effects.check({"good": [0, 1, 2], "better": [0, 1, 2]}, group)


def test_a_handler_that_ends_its_transaction_with_sql_stops_its_group(
    tmp_path: Path, config: Config, environment: dict[str, str]
) -> None:
    project = effect_project(tmp_path / "shop", after='ctx.db.execute("commit")')
    migrate(project, environment)
    publish(config, project, [("bad", 0)])
    command = consume(project, environment)
    assert command.wait() == 1, command.stderr
    assert "a handler ended its transaction with SQL (commit or rollback)" in command.stderr
