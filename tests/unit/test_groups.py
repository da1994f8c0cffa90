"""A group as its author declares it, and how it is found: every mistake is named, with the fix where there is one."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stream import ConsumerGroup, Context, Event
from stream.discovery import discover, select
from stream.errors import GroupError, ProjectImportError
from stream.project import Project
from tests.support.small import make_project


def group(name: Any = "testers", topics: Any = ("things",), **options: Any) -> ConsumerGroup:
    return ConsumerGroup(name, topics, **{"start": "beginning", **options})


def test_a_group_keeps_what_it_was_given() -> None:
    g = group(
        batch=500, give_up_after="90m", rate="600/m", catch_up_rate="5/s", start="2026-01-02T03:00:00+02:00"
    )
    assert (g.batch, g.concurrency, g.attempts, g.on_dead, g.on_reapply) == (500, 8, 5, "release", "run")
    assert g.give_up_after == timedelta(minutes=90)
    assert (g.rate, g.catch_up_rate) == (10.0, 5.0)
    assert g.start == datetime(2026, 1, 2, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": ""}, "a name of letters"),
        ({"name": "a/b"}, "a name of letters"),
        ({"name": ".."}, "a name of letters"),
        ({"topics": "things"}, "a list of topic names, got 'things'"),
        ({"topics": []}, "a list of topic names"),
        ({"topics": ["a", "a"]}, "names one twice"),
        ({"start": "begining"}, 'expected "beginning", "end" or a time, got \'begining\''),
        ({"start": 5}, "got 5"),
        ({"batch": 0}, "from 1 to 10000, got 0"),
        ({"batch": True}, "got True"),
        ({"batch": "500"}, "got '500'"),
        ({"concurrency": 0}, "concurrency"),
        ({"attempts": 0}, "attempts"),
        ({"give_up_after": "soon"}, "such as '24h'"),
        ({"give_up_after": "0s"}, "such as '24h'"),
        ({"on_dead": "cascade"}, "one of release, hold"),
        ({"timeout": 0}, "seconds above 0"),
        ({"timeout": float("nan")}, "seconds above 0"),
        ({"rate": "fast"}, "such as '10/s'"),
        ({"catch_up_rate": 50}, "catch_up_rate: expected a rate such as '10/s'"),
        ({"rate": "0/s"}, "such as '10/s'"),
        ({"on_reapply": "ask"}, "one of run, skip"),
        ({"bacth": 5}, "unknown option 'bacth'; did you mean 'batch'?"),
    ],
)
def test_a_wrong_option_says_what_was_expected_and_what_was_found(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(GroupError) as caught:
        group(**wrong)
    assert says in str(caught.value)
    assert repr(wrong.get("name", "testers")) in str(caught.value)


def test_start_has_no_default() -> None:
    with pytest.raises(GroupError, match="start is missing"):
        ConsumerGroup("testers", ["things"])


def test_handlers_may_be_stacked_and_take_several_types() -> None:
    g = group()

    @g.on("Happened", "Other")
    @g.on("Listed", batch=True)
    def handle(events: object, ctx: Context) -> None: ...

    assert {type: handler.batch for type, handler in g.handlers.items()} == {
        "Happened": False,
        "Other": False,
        "Listed": True,
    }


def test_wrong_handlers_are_refused() -> None:
    g = group()
    g.on("Happened")(lambda event, ctx: None)
    with pytest.raises(GroupError, match="Happened has two handlers"):
        g.on("Happened")(lambda event, ctx: None)
    with pytest.raises(GroupError, match=r"expected \(event, ctx\)"):
        g.on("Other")(lambda event: None)
    with pytest.raises(GroupError, match=r"expected \(events, ctx\)"):
        g.on("Other", batch=True)(lambda a, b, c: None)
    with pytest.raises(GroupError, match="expected event types"):
        g.on()(lambda event, ctx: None)
    with pytest.raises(GroupError, match="expected event types"):
        g.on(print)  # type: ignore[arg-type]  # @group.on without its parentheses

    async def later(event: Event, ctx: Context) -> None: ...

    with pytest.raises(GroupError, match="plain function"):
        g.on("Other")(later)


def test_topics_and_types_are_checked_against_the_project(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    for topics, types, says in [
        (["thing"], ["Happened"], "unknown topic 'thing'; did you mean 'things'?"),
        (["things"], ["Hapened"], "unknown event type 'Hapened'; did you mean 'Happened'?"),
        (["things"], ["Echoed"], "Echoed, which is on topic 'echoes'; the group reads things"),
        (["things"], [], "it has no handler"),
    ]:
        g = group(topics=topics)
        if types:
            g.on(*types)(lambda event, ctx: None)
        with pytest.raises(GroupError) as caught:
            g.check(project)
        assert says in str(caught.value)


# -- discovery ---------------------------------------------------------------------------------------------------

GOOD = """
from stream import ConsumerGroup
group = ConsumerGroup("{name}", topics=["things"], start="end")
@group.on("Happened")
def handle(event, ctx): ...
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "shop")


def write(project: Project, file: str, text: str) -> Path:
    path = project.consumers / file
    path.write_text(text)
    return path


def test_every_file_is_a_group_but_those_with_an_underscore(project: Project) -> None:
    write(project, "_helpers.py", "ANSWER = 42")
    uses_it = "from consumers._helpers import ANSWER\nassert ANSWER == 42"
    path = write(project, "one.py", uses_it + GOOD.format(name="a"))
    write(project, "two.py", GOOD.format(name="b"))
    groups = discover(project)
    assert sorted(groups) == ["a", "b"]
    assert groups["a"].path == path
    assert [g.name for g in select(groups, ["b", "a", "b"])] == ["b", "a"]


def test_another_project_is_another_package(project: Project, tmp_path: Path) -> None:
    write(project, "one.py", GOOD.format(name="a"))
    other = make_project(tmp_path / "other")
    write(other, "one.py", GOOD.format(name="other"))
    assert list(discover(project)) == ["a"]
    assert list(discover(other)) == ["other"]
    assert list(discover(project)) == ["a"]


def test_a_file_may_have_the_name_of_a_standard_module(project: Project) -> None:
    uses_it = "from email.message import EmailMessage\nEmailMessage()"
    write(project, "email.py", uses_it + GOOD.format(name="a"))
    assert list(discover(project)) == ["a"]
    assert str(project.consumers) not in sys.path


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("import nothing_of_that_name", ProjectImportError, "No module named 'nothing_of_that_name'"),
        ("def broken(:", ProjectImportError, "SyntaxError"),
        ("raise SystemExit(3)", ProjectImportError, "SystemExit: 3"),
        ("x = 1", GroupError, "expected `group = ConsumerGroup(...)`, got nothing of that name"),
        ("group = 1", GroupError, "expected `group = ConsumerGroup(...)`, got int"),
        (GOOD.replace("start", "strat"), GroupError, "unknown option 'strat'; did you mean 'start'?"),
        (GOOD.replace("Happened", "Hapened"), GroupError, "unknown event type 'Hapened'"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_name(
    project: Project, text: str, error: type[Exception], says: str
) -> None:
    write(project, "one.py", text.replace("{name}", "a"))
    with pytest.raises(error) as caught:
        discover(project)
    assert says in str(caught.value)
    assert "one.py" in str(caught.value)
    assert "importlib" not in str(caught.value)


def test_two_groups_of_one_name_are_refused(project: Project) -> None:
    write(project, "one.py", GOOD.format(name="same"))
    write(project, "two.py", GOOD.format(name="same"))
    with pytest.raises(GroupError, match=r"two\.py: group 'same' is declared in .*one\.py already"):
        discover(project)


def test_an_unknown_group_is_named_beside_those_there_are(project: Project) -> None:
    write(project, "one.py", GOOD.format(name="invoicing"))
    with pytest.raises(GroupError, match="did you mean 'invoicing'") as caught:
        select(discover(project), ["invoices"])
    assert caught.value.exit_code == 2
