"""`stream groups`: how the groups stand, and what a person can hold and let go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from stream import ConsumerGroup, Context, Event, PermanentError, TransientError
from stream.config import Config, RetrySettings
from stream.project import Project
from stream.stack import ports
from tests.support.cli import follow, hints, stream, stream_json
from tests.support.effects import committed
from tests.support.groups import Member, publish
from tests.support.letters import rows
from tests.support.small import make_project
from tests.support.topics import create_topic, read_all
from tests.support.waiting import until

pytestmark = pytest.mark.long

INSERT = "insert into effect (event_id, key, n) values (%s, %s, %s)"
SUMMARY = {
    "group", "state", "members", "lag", "lag_seconds", "parked", "held", "dead", "verdict", "reason",
}  # fmt: skip
PARTITION = {
    "topic", "partition", "committed", "end", "lag", "lag_seconds", "rate_in", "rate_out", "eta_seconds", "owner",
    "movement", "blocked_by", "blocked_why", "oldest",
}  # fmt: skip
DETAILS = SUMMARY | {
    "rate_in", "rate_out", "eta_seconds", "rated_over", "history", "partitions", "workers", "gaps", "grown",
}  # fmt: skip
RESTING = """
from stream import ConsumerGroup
group = ConsumerGroup("resting", topics=["things"], start="end")
@group.on("Happened")
def rest(event, ctx): pass
"""
# Nothing that holds a group ends by itself while a test looks at it.
PATIENT = replace(RetrySettings(), halt_probe_s=3600.0, probe_first_s=3600.0, probe_most_s=3600.0)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "small")


@pytest.fixture
def small(config: Config, project: Project) -> Config:
    for topic in ("things", "testers.retry", "testers.dlq"):
        create_topic(config, topic, 4)
    return replace(config, project=project.root, retries=PATIENT)


@pytest.fixture
def member(project: Project, small: Config, conn: psycopg.Connection[Any]) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(handler: Any = None, *, exit_at_end: bool = False, **options: Any) -> Member:
        group = ConsumerGroup("testers", topics=["things"], start="beginning", **options)
        group.on("Happened")(handler or apply)
        made.append(Member(group, project, small, exit_at_end=exit_at_end))
        until(lambda: rows(conn, "select from stream.group_state where topic_ids <> '{}'"))
        return made[-1]

    yield make
    for each in made:
        if each.running:
            each.end()


def apply(event: Event, ctx: Context) -> None:
    ctx.db.execute(INSERT, [event.id, event.key, event.data["n"]])


def the_group(config: Config) -> dict[str, Any]:
    [found] = stream_json(config, "groups", "list")
    assert isinstance(found, dict)
    return found


def actions(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return rows(conn, "select action, target, result, reason from stream.operator_action order by id")


def test_a_group_that_never_ran_is_listed_with_nothing_known(small: Config, project: Project) -> None:
    result = stream(small, "groups", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    (project.root / "consumers" / "resting.py").write_text(RESTING)
    publish(small, project, [("a", 1)])
    found = the_group(small)
    assert set(found) == SUMMARY
    assert (found["group"], found["state"], found["members"]) == ("resting", "no members", 0)
    assert (found["lag"], found["lag_seconds"], found["verdict"]) == (None, None, "OK")
    assert found["reason"] == "it never ran on this database"
    _, line = stream(small, "groups", "list").stdout.splitlines()
    assert line.split()[:9] == ["resting", "no", "members", "0", "-", "-", "0", "0", "0"]


def test_the_lag_of_a_group_that_is_caught_up_and_of_one_half_way(
    small: Config, project: Project, member, effects
) -> None:
    publish(small, project, [("a", n) for n in range(10)])
    first = member()
    until(lambda: len(effects()) == 10)
    found = the_group(small)
    assert (found["state"], found["members"], found["verdict"]) == ("running", 1, "OK")
    first.end()
    found = the_group(small)
    assert (found["state"], found["lag"], found["lag_seconds"]) == ("no members", 0, 0.0)
    assert found["verdict"] == "OK"

    [(partition, end)] = [item for item in committed(small).items() if item[1]]
    consumer = Consumer({"bootstrap.servers": small.bootstrap_servers, "group.id": small.prefix + "testers"})
    consumer.commit(offsets=[TopicPartition(small.prefix + "things", partition, 4)], asynchronous=False)
    consumer.close()
    [written] = [
        message.timestamp()[1] / 1000
        for message in read_all(small, "things")
        if (message.partition(), message.offset()) == (partition, 4)
    ]
    before = time.time()
    found = the_group(small)
    assert (found["lag"], found["verdict"]) == (6, "STOPPED")
    assert before - written <= found["lag_seconds"] <= time.time() - written
    result = stream(small, "groups", "describe", "testers")
    assert hints(result) == ["stream consume --group testers"]
    detail = stream_json(small, "groups", "describe", "testers")
    assert set(detail) == DETAILS
    assert all(set(one) == PARTITION for one in detail["partitions"])
    assert [(one["topic"], one["partition"]) for one in detail["partitions"]] == [
        (topic, number) for topic in ("testers.retry", "things") for number in range(4)
    ]
    assert [
        (one["committed"], one["end"], one["lag"])
        for one in detail["partitions"]
        if (one["topic"], one["partition"]) == ("things", partition)
    ] == [(4, end, 6)]


def test_looking_disturbs_no_member(small: Config, project: Project, member, effects) -> None:
    m = member()
    publish(small, project, [("a", 0)])
    until(lambda: len(effects()) == 1)
    generation = m.processor._progress.generation
    for _ in range(3):
        the_group(small)
    publish(small, project, [("a", 1)])
    until(lambda: len(effects()) == 2)
    assert m.processor._progress.generation == generation


def test_a_paused_group_starts_nothing_until_it_is_resumed(
    small: Config, project: Project, member, effects, conn
) -> None:
    m = member()
    publish(small, project, [("a", 0)])
    until(lambda: len(effects()) == 1)
    result = stream(small, "groups", "pause", "testers", "--reason", "the provider asked us to")
    assert result.exit_code == 0, result.output
    until(lambda: m.processor._control.hold == "paused", 2)
    assert m.processor._control.reason == "by an operator: the provider asked us to"
    publish(small, project, [(f"k{n}", n) for n in range(5)])
    until(lambda: m.processor._lanes.startable == 5)
    begun = time.monotonic()
    until(lambda: time.monotonic() > begun + 1)
    assert len(effects()) == 1
    found = the_group(small)
    assert (found["state"], found["members"], found["lag"]) == ("paused", 1, 5)
    assert (found["verdict"], found["reason"]) == ("PAUSED", "by an operator: the provider asked us to")
    listed = stream(small, "groups", "list")
    described = stream(small, "groups", "describe", "testers")
    assert "the provider asked us to" in listed.stdout
    assert "held     paused: by an operator: the provider asked us to, since 20" in described.stdout
    for each in (result, listed, described):
        assert hints(each) == ["stream groups resume testers"]
    done = follow(small, hints(listed)[0])
    assert done.exit_code == 0
    assert "the pause is lifted (by an operator: the provider asked us to" in done.stderr
    until(lambda: len(effects()) == 6)
    assert the_group(small)["verdict"] == "OK"
    assert actions(conn) == [
        ("groups pause", "testers", "paused", "the provider asked us to"),
        ("groups resume", "testers", "resumed", None),
    ]


def test_a_pause_replaces_another_and_says_so(small: Config, member, conn) -> None:
    member(exit_at_end=True).wait()
    stream(small, "groups", "pause", "testers", "--reason", "first")
    until_then = datetime.now(UTC) + timedelta(hours=2)
    result = stream(
        small, "groups", "pause", "testers", "--reason", "second", "--until", until_then.isoformat()
    )
    assert "it was paused already (by an operator: first" in result.stderr
    found = the_group(small)
    assert found["state"] == f"paused until {until_then.isoformat().replace('+00:00', 'Z')}"
    assert found["reason"] == "by an operator: second"
    [(paused_until,)] = rows(conn, "select paused_until from stream.group_state")
    assert paused_until == until_then
    stream(small, "groups", "pause", "testers", "--reason", "third", "--for", "30m")
    [(left,)] = rows(conn, "select paused_until - clock_timestamp() from stream.group_state")
    assert timedelta(minutes=29) < left <= timedelta(minutes=30)


def test_a_pause_ends_by_itself_at_its_time(small: Config, project: Project, member, effects) -> None:
    m = member()
    until(lambda: m.processor._progress.partitions())
    stream(small, "groups", "pause", "testers", "--reason", "a moment", "--for", "3s")
    until(lambda: m.processor._control.hold == "paused", 2)
    publish(small, project, [("a", 0)])
    until(lambda: len(effects()) == 1, 10)
    assert the_group(small)["verdict"] == "OK"


def test_a_group_that_never_ran_can_be_paused_and_begins_once_it_goes_on(
    small: Config, project: Project, member, effects, conn
) -> None:
    (project.root / "consumers" / "testers.py").write_text(RESTING.replace("resting", "testers"))
    publish(small, project, [("a", 0)])
    assert stream(small, "groups", "pause", "testers", "--reason", "not yet").exit_code == 0
    assert the_group(small)["state"] == "paused"
    m = member()
    until(lambda: m.processor._lanes.startable == 1)
    assert effects() == []
    stream(small, "groups", "resume", "testers")
    until(lambda: len(effects()) == 1)
    assert rows(conn, "select start_policy from stream.group_state") == [("beginning",)]


def test_a_halted_group_is_listed_as_such_and_goes_on_with_mended_code(
    small: Config, project: Project, member, effects, conn
) -> None:
    mended = threading.Event()

    def handler(event: Event, ctx: Context) -> None:
        if not mended.is_set():
            raise PermanentError("a bad deploy")
        apply(event, ctx)

    publish(small, project, [(f"k{n}", n) for n in range(40)])
    m = member(handler, concurrency=1)
    until(lambda: the_group(small)["verdict"] == "HALTED")
    found = the_group(small)
    assert (found["state"], found["dead"]) == ("halted", 10)
    assert "in a row" in found["reason"]
    listed = stream(small, "groups", "list")
    assert hints(listed) == ["stream groups resume testers"]
    commands = hints(stream(small, "groups", "describe", "testers"))
    assert commands == ["stream dlq list --group testers", "stream groups resume testers"]
    mended.set()
    for command in commands:
        assert follow(small, command).exit_code == 0
    until(lambda: len(effects()) == 30)
    until(lambda: the_group(small)["lag"] == 0)
    m.end()
    assert rows(conn, "select count(*) from stream.dead_letter") == [(10,)]


HELD = {
    "paused": ("paused_until = 'infinity', paused_reason = 'tests'", "the pause is lifted (by an operator: tests"),
    "halted": ("halted_at = now(), halted_reason = 'ten in a row'", "the halt is lifted (ten in a row"),
    "breaker open": (
        "breaker_open_since = now(), breaker_reason = 'five in a row'", "the open breaker is lifted (five in a row",
    ),
}  # fmt: skip


@pytest.mark.parametrize("hold", HELD)
def test_resume_lifts_whatever_holds_and_workers_count_anew(
    hold: str, small: Config, project: Project, member, effects, conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = member()
    until(lambda: m.processor._progress.partitions())
    counted_anew = threading.Event()
    monkeypatch.setattr(m.processor._control._health, "start_over", counted_anew.set)
    state, words = HELD[hold]
    conn.execute(f"update stream.group_state set {state}")
    conn.commit()
    until(lambda: m.processor._control.hold == hold)
    found = the_group(small)
    assert (found["state"], found["verdict"]) == (hold, hold.upper())
    assert not counted_anew.is_set()
    result = stream(small, "groups", "resume", "testers", "--reason", "mended")
    assert words in result.stderr
    publish(small, project, [("a", 0)])
    until(lambda: len(effects()) == 1)
    assert counted_anew.is_set()
    assert actions(conn) == [("groups resume", "testers", "resumed", "mended")]


def test_resume_lifts_all_at_once_and_forgets_the_deaths_before_it(
    small: Config, project: Project, member, conn
) -> None:
    def handler(event: Event, ctx: Context) -> None:
        raise PermanentError("no lines")

    m = member(handler)
    publish(small, project, [(f"k{n}", n) for n in range(3)])
    until(lambda: rows(conn, "select count(*) from stream.dead_letter") == [(3,)])
    m.end()
    assert rows(conn, "select streak_after from stream.group_state") == [(0,)]
    for state, _ in HELD.values():
        conn.execute(f"update stream.group_state set {state}")
    conn.commit()
    found = the_group(small)
    assert (found["state"], found["reason"]) == (
        "halted", "ten in a row; paused too: by an operator: tests; breaker open too: five in a row"
    )  # fmt: skip
    result = stream(small, "groups", "resume", "testers")
    assert [words for _, words in HELD.values() if words not in result.stderr] == []
    assert rows(conn, "select streak_after from stream.group_state") == [(3,)]
    assert the_group(small)["state"] == "no members"


def test_resume_of_a_group_that_nothing_holds_says_so(small: Config, member, conn) -> None:
    member(exit_at_end=True).wait()
    result = stream(small, "groups", "resume", "testers")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (0, "testers: nothing holds it")
    assert actions(conn) == []


@pytest.mark.parametrize("words", [["describe"], ["resume"], ["pause", "--reason", "why"]])
def test_an_unknown_group_is_refused_with_those_there_are(words: list[str], small: Config, member) -> None:
    member(exit_at_end=True).wait()
    command, *options = words
    result = stream(small, "groups", command, "tester", *options)
    assert result.exit_code == 2
    assert "unknown group 'tester'; did you mean 'testers'? (groups: testers)" in result.stderr
    [hint] = hints(result)
    assert hint.startswith(f"stream groups {command} ")
    assert follow(small, hint).exit_code == 0
    assert "known are testers" in stream(small, "groups", command, "xyz", *options).stderr


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--reason", " "],
        ["--reason", "why", "--for", "soon"],
        ["--reason", "why", "--for", "0m"],
        ["--reason", "why", "--until", "2020-01-01"],
        ["--reason", "why", "--until", "2h"],
        ["--reason", "why", "--for", "1h", "--until", "2999-01-01"],
    ],
)
def test_a_pause_needs_a_reason_and_an_end_to_come(options: list[str], small: Config, member, conn) -> None:
    member(exit_at_end=True).wait()
    assert stream(small, "groups", "pause", "testers", *options).exit_code == 2
    assert the_group(small)["state"] == "no members"


def test_without_a_broker_all_but_the_lag_is_shown(small: Config, member, conn) -> None:
    member(exit_at_end=True).wait()
    stream(small, "groups", "pause", "testers", "--reason", "an outage")
    away = replace(small, bootstrap_servers=f"127.0.0.1:{ports.choose(None)}")
    result = stream(away, "groups", "list")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[1].split()[:5] == ["testers", "paused", "0", "-", "-"]
    assert "does not answer" in result.stderr


def test_a_project_that_does_not_import_keeps_nobody_from_pausing(
    small: Config, project: Project, member
) -> None:
    member(exit_at_end=True).wait()
    (project.root / "consumers" / "testers.py").write_text("import nothing_of_this_name")
    result = stream(small, "groups", "pause", "testers", "--reason", "a bad deploy")
    assert result.exit_code == 0
    assert "does not import" in result.stderr
    assert the_group(small)["state"] == "paused"


def test_describe_names_who_reads_what_and_which_key_blocks(
    small: Config, project: Project, member, effects
) -> None:
    def handler(event: Event, ctx: Context) -> None:
        if event.key == "bad":
            raise TransientError("not yet")
        ctx.heartbeat(progress=f"at {event.data['n']}")
        working.set()
        finish.wait(30)
        apply(event, ctx)

    working, finish = threading.Event(), threading.Event()
    m = member(handler)
    publish(small, project, [("bad", 0), ("bad", 1)])
    until(lambda: the_group(small)["parked"] == 1)
    publish(small, project, [("good", 7)])
    until(working.is_set)
    until(lambda: stream_json(small, "groups", "describe", "testers")["workers"][0]["progress"] == "at 7")
    detail = stream_json(small, "groups", "describe", "testers")
    text = stream(small, "groups", "describe", "testers").stdout
    finish.set()
    [worker] = detail["workers"]
    assert (worker["there"], worker["partitions"]) == (True, 8)
    assert {one["owner"] for one in detail["partitions"]} == {worker["worker"]}
    blocked = {one["blocked_by"]: one for one in detail["partitions"] if one["blocked_by"] is not None}
    assert {one["topic"] for one in blocked.values()} == {"things"}
    assert blocked["bad"]["blocked_why"].startswith("parked since 20")
    assert "not yet; and" not in blocked["bad"]["blocked_why"]
    assert (detail["parked"], detail["held"]) == (1, 0)
    assert "at 7 (20" in text
    until(lambda: len(effects()) == 1)
    m.end()
    detail = stream_json(small, "groups", "describe", "testers")
    assert (detail["members"], detail["workers"], detail["state"]) == (0, [], "no members")
    assert {one["owner"] for one in detail["partitions"]} == {None}


def test_a_process_that_died_is_no_member_but_named_by_what_it_left(small: Config, member, conn) -> None:
    member(exit_at_end=True).wait()
    conn.execute(
        "insert into stream.assignment (consumer_group, topic, partition, worker)"
        " select 'testers', 'things', n, 'dead-1' from generate_series(0, 3) n"
    )
    conn.execute("update stream.worker set worker = 'dead-1', session = 2147483647")
    conn.commit()
    detail = stream_json(small, "groups", "describe", "testers")
    assert detail["members"] == 0
    assert [(one["worker"], one["there"], one["partitions"]) for one in detail["workers"]] == [
        ("dead-1", False, 4)
    ]
    assert {one["owner"] for one in detail["partitions"]} == {None}
    assert "gone; nobody has taken its partitions" in stream(small, "groups", "describe", "testers").stdout
    member(exit_at_end=True).wait()
    assert "dead-1" not in {worker for (worker,) in rows(conn, "select worker from stream.worker")}


def test_held_keys_and_open_letters_are_counted(small: Config, project: Project, member, conn) -> None:
    def handler(event: Event, ctx: Context) -> None:
        raise PermanentError("no lines")

    m = member(handler, on_dead="hold")
    publish(small, project, [("a", 0), ("a", 1), ("b", 2)])
    until(lambda: [the_group(small)[name] for name in ("parked", "held", "dead")] == [0, 2, 2])
    m.end()
    assert hints(stream(small, "groups", "describe", "testers")) == [
        "stream parked list --group testers", "stream dlq list --group testers"
    ]  # fmt: skip
