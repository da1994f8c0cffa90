"""What the doctor's checks say of facts: those that cannot be had at a server's hands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream import ConsumerGroup, checks
from stream.app import Migration
from stream.checks import CHECKS, clocks, locks, settings
from stream.checkup import Server, Tables
from stream.findings import Declared, Facts, Finding, Problem, SchemaFiles
from stream.kafka.survey import Survey, SurveyedTopic
from stream.topics import Topic
from stream.views import OutboxStatus

SERVER = Server("18.6", "shop", "app", [], 0.0, 0.001, 64, 6400, 10)
SURVEY = Survey("id", 1, {"things": SurveyedTopic(4, "id", {}, None)}, oldest={}, newest_age_s=1.0)
DECLARED = Declared({"things": Topic("things", ("Happened",), 4)}, {})
TABLES = Tables([], OutboxStatus(0, None, 0, 0, [], []), {}, {})
FACTS = Facts(SchemaFiles(1, [], []), DECLARED, SURVEY, SERVER, Migration(), TABLES)
AWAY = Problem("broker", "Kafka does not answer", "stream stack status")


def of(found: list[Finding]) -> list[str]:
    return [one.status for one in found]


def test_every_check_says_something_and_says_its_name() -> None:
    found = checks.run(FACTS)
    assert list(dict.fromkeys(one.check for one in found)) == [check.name for check in CHECKS]
    assert {one.status for one in found if one.check != "outbox"} == {"success"}


def test_what_is_missing_fails_one_check_and_halts_the_others_that_need_it() -> None:
    found = checks.run(replace(FACTS, broker=AWAY))
    [failed] = [one for one in found if one.status == "failure"]
    assert (failed.check, failed.message, failed.fix) == ("broker", AWAY.message, AWAY.fix)
    needing = {check.name for check in CHECKS if "broker" in check.needs and check.name != "broker"}
    assert {one.check for one in found if one.status == "halted"} == needing
    assert {one.message for one in found if one.status == "halted"} == {"not run, see broker"}


def test_whatever_is_wrong_has_its_fix() -> None:
    group = ConsumerGroup("testers", topics=["things"], start="end", batch=10_000)
    facts = replace(
        FACTS,
        schemas=SchemaFiles(1, ["one is wrong"], []),
        declared=replace(
            DECLARED, topics=DECLARED.topics | {"more": Topic("more", (), 1)}, groups={"testers": group}
        ),
        broker=replace(
            SURVEY,
            topics={"things": SurveyedTopic(5, "id", {"message.timestamp.type": "CreateTime"}, "no leader")},
            denied={"topic things": frozenset({"READ"})},
            newest_age_s=-100.0,
        ),
        server=replace(SERVER, lacking=["USAGE on schema stream"]),
        migration=Migration(migrations=["0001_outbox"]),
    )
    found = checks.run(facts)
    wrong = {
        "schemas",
        "migrations",
        "topics",
        "partitions",
        "settings",
        "clocks",
        "rights",
        "permissions",
        "locks",
    }
    assert {one.check for one in found if one.status != "success"} == wrong | {"outbox"}
    assert all(one.fix for one in found if one.status != "success")


@pytest.mark.parametrize(
    "ahead_s, exact_s, age_s, said",
    [
        (0.0, 0.001, 1.0, ["success"]),
        (0.0, 0.001, None, ["success"]),
        (-2.1, 0.001, 1.0, ["warning"]),
        (2.1, 0.5, 1.0, ["success"]),  # the answer was slow: it may be less
        (61.0, 0.001, 1.0, ["failure"]),
        (0.0, 0.001, -3.0, ["warning"]),
        (3.0, 0.001, -90.0, ["warning", "failure"]),
    ],
)
def test_clocks_that_differ(ahead_s: float, exact_s: float, age_s: float | None, said: list[str]) -> None:
    server = replace(SERVER, ahead_s=ahead_s, exact_s=exact_s)
    assert of(clocks(server, replace(SURVEY, newest_age_s=age_s))) == said


@pytest.mark.parametrize(
    "batch, held, said",
    [(1, 10, "success"), (800, 10, "success"), (801, 10, "failure"), (1, 3201, "warning")],
)
def test_the_lock_table_against_the_largest_batch(batch: int, held: int, said: str) -> None:
    group = ConsumerGroup("testers", topics=["things"], start="end", batch=batch)
    server = replace(SERVER, locks_held=held)
    assert of(locks(replace(DECLARED, groups={"testers": group}), server)) == [said]


@pytest.mark.parametrize("has, said", [("delete,compact", "success"), ("delete", "warning")])
def test_a_list_of_settings_has_no_order(has: str, said: str) -> None:
    topic = Topic("things", ("Happened",), 4, cleanup="compact,delete")
    survey = replace(SURVEY, topics={"things": SurveyedTopic(4, "id", {"cleanup.policy": has}, None)})
    assert of(settings(Declared({"things": topic}, {}), survey, "")) == [said]
