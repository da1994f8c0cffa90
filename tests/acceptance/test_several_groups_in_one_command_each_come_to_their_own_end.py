"""One process, several groups: what holds one of them holds no other, and the exit code says it."""

from pathlib import Path

from stream.config import Config
from tests.support.effects import Effects, consume, effect_project, migrate, write_group
from tests.support.groups import publish

REFUSE = "assert event.key != 'bad', 'never'"


def test_several_groups_in_one_command_each_come_to_their_own_end(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    project = effect_project(tmp_path / "shop", "one", "two", "three")
    write_group(project, "three", before=REFUSE)
    write_group(project, "unasked")
    migrate(project, environment)
    publish(config, project, [(key, n) for n in range(5) for key in ("bad", "good")])
    both = consume(project, environment, "one", "two", at_end=True)
    assert both.wait() == 0, both.stderr
    assert "one: 10 done" in both.stderr and "two: 10 done" in both.stderr

    # One still works when three has come to its end, with a key that fails.
    write_group(project, "one", before='ctx.db.execute("select pg_sleep(0.05)")')
    publish(config, project, [("good", n) for n in range(5, 50)])
    all_three = consume(project, environment, "one", "two", "three", at_end=True)
    assert all_three.wait() == 6
    assert "group 'three'" in all_three.error and "bad" in all_three.error
    whole = {"bad": [0, 1, 2, 3, 4], "good": list(range(50))}
    assert (effects.by_key("one"), effects.by_key("two")) == (whole, whole)
    assert effects.by_key("three") == {"good": whole["good"]}
    assert effects.by_key("unasked") == {}
