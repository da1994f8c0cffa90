"""`stream groups list|describe`: how late a group is, how that goes, and what stands in the way."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from stream import ConsumerGroup, Context, Event, PermanentError, lookout, samples
from stream.config import Config
from stream.kafka.lag import lags
from stream.project import Project
from tests.support.cli import hints, stream, stream_json
from tests.support.effects import Load, committed, write_group
from tests.support.groups import Member, publish
from tests.support.letters import rows
from tests.support.small import make_project
from tests.support.topics import create_topic, delete_topic
from tests.support.waiting import until

pytestmark = pytest.mark.long


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "small")


@pytest.fixture
def small(config: Config, project: Project) -> Config:
    for topic in ("things", "testers.retry", "testers.dlq"):
        create_topic(config, topic, 2)
    return replace(config, project=project.root)


@pytest.fixture
def member(project: Project, small: Config, conn: psycopg.Connection[Any]) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(handler: Any = None, **options: Any) -> Member:
        group = ConsumerGroup("testers", topics=["things"], start="beginning", **options)
        group.on("Happened")(handler or (lambda event, ctx: None))
        made.append(Member(group, project, small))
        until(lambda: rows(conn, "select from stream.group_state where topic_ids <> '{}'"))
        return made[-1]

    yield make
    for each in made:
        if each.running:
            each.end()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other so soon that a window of them is a second."""
    monkeypatch.setattr(samples, "EVERY_S", 0.2)
    monkeypatch.setattr(lookout, "TICK_S", 0.1)


def describe(config: Config) -> dict[str, Any]:
    found = stream_json(config, "groups", "describe", "testers")
    assert isinstance(found, dict)
    return found


def things(detail: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in detail["partitions"] if one["topic"] == "things"]


def looks(conn: psycopg.Connection[Any]) -> int:
    [(count,)] = rows(conn, "select count(*) from stream.sample")
    return int(count)


def caught_up(config: Config) -> bool:
    """Asked past the command: what a member logs at its start would stand between its JSON."""
    found = lags(config, {"testers": ["things"]})["testers"]
    return all(one.lag == 0 for one in found.values())


def ends(config: Config) -> dict[int, int]:
    return {p: one.end for (_, p), one in lags(config, {"testers": ["things"]})["testers"].items()}


def set_offsets(config: Config, offsets: dict[int, int]) -> None:
    """As another tool would, of a group without members."""
    consumer = Consumer(
        {"bootstrap.servers": config.bootstrap_servers, "group.id": config.prefix + "testers"}
    )
    places = [TopicPartition(config.prefix + "things", p, offset) for p, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def publish_old(config: Config, project: Project, hours: float) -> None:
    """A record that is hours old in each partition."""
    producer = Producer({"bootstrap.servers": config.bootstrap_servers})
    stamp = int((time.time() - hours * 3600) * 1000)
    for partition in range(2):
        value = project.codec.encode("Happened", {"n": partition})
        producer.produce(config.prefix + "things", value, b"old", partition=partition, timestamp=stamp)
    assert producer.flush(30) == 0


def test_an_idle_topic_is_not_behind_however_old_its_last_record_is(
    small: Config, project: Project, member
) -> None:
    publish_old(small, project, hours=5)
    m = member()
    until(lambda: caught_up(small))
    detail = describe(small)
    assert (detail["lag"], detail["lag_seconds"], detail["eta_seconds"]) == (0, 0.0, 0.0)
    assert {(one["lag_seconds"], one["eta_seconds"], one["oldest"]) for one in things(detail)} == {
        (0.0, 0.0, None)
    }
    m.end()
    assert describe(small)["lag_seconds"] == 0.0


def test_after_a_rewind_the_age_is_that_of_the_next_record_and_at_the_end_it_is_0(
    small: Config, project: Project, member
) -> None:
    publish_old(small, project, hours=5)
    publish(small, project, [(f"k{n}", n) for n in range(20)])
    m = member()
    until(lambda: caught_up(small))
    m.end()
    ends = committed(small)
    set_offsets(small, {0: 0, 1: ends[1]})
    detail = describe(small)
    [first, second] = things(detail)
    assert 5 * 3600 <= first["lag_seconds"] < 5 * 3600 + 300
    assert (first["oldest"]["offset"], first["oldest"]["key"]) == (0, "old")
    assert (second["lag"], second["lag_seconds"]) == (0, 0.0)
    assert detail["lag_seconds"] == first["lag_seconds"]
    assert detail["verdict"] == "STOPPED"
    assert (first["blocked_by"], second["blocked_by"]) == ("(no member)", None)
    set_offsets(small, ends)
    assert describe(small)["lag_seconds"] == 0.0


def test_the_first_call_has_rates_though_nobody_has_looked_before(
    small: Config, project: Project, member, conn
) -> None:
    publish(small, project, [("a", 0)])
    m = member()
    until(lambda: caught_up(small))
    m.end()
    conn.execute("delete from stream.sample")
    conn.commit()
    with Load(small, project, pause_s=0.02) as load:
        load.wait(20)
        detail = describe(small)
        text = stream(small, "groups", "describe", "testers").stdout
    assert 5 <= detail["rate_in"] <= 55
    assert detail["rate_out"] == 0
    assert (detail["eta_seconds"], detail["lag"] > 0) == (None, True)
    assert detail["rated_over"] >= 2
    assert "drained  growing" in text


def test_the_time_to_drain_is_that_of_the_rate(small: Config, project: Project, member, conn) -> None:
    publish(small, project, [(f"k{n % 40}", n) for n in range(3000)])
    member(rate="100/s")
    until(lambda: looks(conn) >= 1)
    until(lambda: describe(small)["rate_out"], what="the first looks")
    first = looks(conn)
    until(lambda: looks(conn) > first + 1)
    detail = describe(small)
    assert 80 <= detail["rate_out"] <= 105
    assert detail["rate_in"] == 0
    assert detail["eta_seconds"] == pytest.approx(detail["lag"] / detail["rate_out"], rel=0.01)
    assert "over" in stream(small, "groups", "describe", "testers").stdout


def test_one_process_of_a_group_looks_for_all(small: Config, project: Project, member, conn, often) -> None:
    publish(small, project, [(f"k{n}", n) for n in range(20)])
    member()
    member()
    until(lambda: looks(conn) >= 5)
    times = [at.timestamp() for (at,) in rows(conn, "select at from stream.sample order by at")]
    assert min(after - before for before, after in pairwise(times)) >= 0.19


def test_a_partition_that_stands_is_stalled_and_its_event_is_named(
    small: Config, project: Project, member, conn, often
) -> None:
    finish = threading.Event()

    def handler(event: Event, ctx: Context) -> None:
        if event.key == "stuck":
            finish.wait(60)

    publish(small, project, [("stuck", 0), ("stuck", 1)])
    begun = time.time()
    member(handler)
    until(lambda: describe(small)["verdict"] == "STALLED")
    detail = describe(small)
    listed = stream(small, "groups", "list")
    finish.set()
    [one] = [one for one in things(detail) if one["lag"]]
    assert (one["blocked_by"], one["movement"]) == ("stuck", "stalled")
    event, _, since = one["blocked_why"].partition(" in its handler since ")
    assert event == f"event {one['oldest']['event_id']}"
    assert abs(datetime.fromisoformat(since).timestamp() - begun) < 15
    assert one["oldest"]["key"] == "stuck"
    assert f"things[{one['partition']}] stands at 0, 2 records wait: key stuck, event" in detail["reason"]
    assert detail["workers"][0]["handling"][0]["key"] == "stuck"
    assert "STALLED" in listed.stdout
    assert hints(listed) == ["stream groups describe testers"]
    until(lambda: describe(small)["verdict"] == "OK")


def test_a_lag_that_only_grows_is_falling_behind(small: Config, project: Project, member, often) -> None:
    write_group(project, catch_up_rate="1/s")
    with Load(small, project, burst=100, pause_s=0.01) as load:
        load.wait(100)  # behind from the first look on: one without lag says that all is well
        member(catch_up_rate="1/s", concurrency=1)
        until(lambda: sum(committed(small).values()) > 0)
        detail: dict[str, Any] = {}

        def falls_behind() -> bool:
            detail.update(describe(small))
            return bool(detail["verdict"] == "FALLING BEHIND")

        until(falls_behind, 60)
    assert re.search(r"records come a second, .* are done; history is held to 1 a second$", detail["reason"])
    assert detail["eta_seconds"] is None


def test_history_that_is_left_is_told_apart_from_what_came_since(
    small: Config, project: Project, member, conn
) -> None:
    publish(small, project, [(f"k{n % 40}", n) for n in range(4000)])
    write_group(project, catch_up_rate="20/s")
    m = member(catch_up_rate="20/s")
    until(lambda: sum(committed(small).values()) > 0)
    publish(small, project, [(f"k{n % 40}", n) for n in range(4000, 4100)])
    detail = describe(small)
    text = stream(small, "groups", "describe", "testers").stdout
    m.end()
    history = detail["history"]
    assert 0 < history["records"] < 4000
    assert history == {"records": detail["lag"] - 100, "rate": 20.0}
    assert re.search(r"^history  3\d\d\d records left, at most 20 a second$", text, re.MULTILINE)

    (project.root / "consumers" / "testers.py").unlink()
    assert describe(small)["history"]["rate"] is None  # nobody knows
    text = stream(small, "groups", "describe", "testers").stdout
    assert re.search(r"^history  3\d\d\d records left$", text, re.MULTILINE)
    set_offsets(small, {p: end - 1 for p, end in ends(small).items()})
    detail = describe(small)
    assert (detail["lag"], detail["history"]) == (2, None)
    assert "history" not in stream(small, "groups", "describe", "testers").stdout


def test_a_held_key_is_named_with_its_event(small: Config, project: Project, member) -> None:
    def handler(event: Event, ctx: Context) -> None:
        if event.key == "bad":
            raise PermanentError("no \x1b[31mlines")

    [first, *_] = publish(small, project, [("bad", 0), ("bad", 1), ("good", 2)])
    member(handler, on_dead="hold")
    until(lambda: stream_json(small, "groups", "list")[0]["held"] == 1)
    until(lambda: caught_up(small))
    detail = describe(small)
    assert (detail["verdict"], detail["lag"], detail["lag_seconds"]) == ("KEYS HELD", 0, 0.0)
    assert detail["reason"] == "1 key waits for an operator, bad longest"
    [one] = [one for one in things(detail) if one["blocked_by"]]
    assert (one["blocked_by"], one["oldest"]["event_id"]) == ("bad", str(first))
    assert one["blocked_why"].startswith("held since 20")
    result = stream(small, "groups", "describe", "testers")
    assert "bad: held since 20" in result.stdout
    assert "\x1b" not in result.stdout
    assert hints(result) == ["stream parked list --group testers", "stream dlq list --group testers"]


def test_a_gap_that_retention_made_is_shown(small: Config, project: Project, member) -> None:
    publish(small, project, [("a", n) for n in range(10)])
    m = member()
    until(lambda: caught_up(small))
    m.end()
    publish(small, project, [("a", n) for n in range(10, 20)])
    [p] = [p for p, offset in committed(small).items() if offset == 10]
    cut = TopicPartition(small.prefix + "things", p, 15)
    admin = AdminClient({"bootstrap.servers": small.bootstrap_servers})
    admin.delete_records([cut])[cut].result(20)
    assert describe(small)["lag"] == 5
    m = member()
    until(lambda: caught_up(small))
    [gap] = describe(small)["gaps"]
    assert (gap["topic"], gap["partition"], gap["from_offset"], gap["to_offset"]) == ("things", p, 10, 15)
    text = stream(small, "groups", "describe", "testers").stdout
    assert f"gap      things[{p}], offsets 10 to 14: retention took them unread, found 20" in text


def test_a_topic_that_is_gone_is_said_by_the_group_and_of_it(
    small: Config, project: Project, member, capsys: pytest.CaptureFixture[str], often
) -> None:
    publish(small, project, [("a", 0)])
    member()
    until(lambda: caught_up(small))
    delete_topic(small, "things")
    said: list[str] = []
    until(lambda: said.append(capsys.readouterr().out) or "topic.missing" in "".join(said))
    assert stream_json(small, "groups", "list")[0]["verdict"] == "TOPIC MISSING"
    result = stream(small, "groups", "list")
    assert "topic things does not exist" in result.stdout
    assert hints(result) == ["stream migrate"]


def test_without_a_broker_a_described_group_has_what_the_database_knows(
    small: Config, project: Project, member
) -> None:
    m = member()
    until(lambda: caught_up(small))
    m.end()
    away = replace(small, bootstrap_servers="127.0.0.1:1")
    result = stream(away, "groups", "describe", "testers", "--format", "json")
    assert result.exit_code == 3
    assert '"partitions": []' in result.stdout
