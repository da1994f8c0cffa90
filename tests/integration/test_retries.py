"""A group, its retry topic and a relay: what fails comes back, in order, and what cannot be helped holds nobody."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from stream import ConsumerGroup, Context, Event, PermanentError, TransientError
from stream.config import Config, RetrySettings
from stream.parking import lane_number
from stream.project import Project
from stream.relay import Relay
from tests.support.groups import Member, publish
from tests.support.retries import RetryingWorker
from tests.support.small import record
from tests.support.topics import create_topic, produce_raw, read_all
from tests.support.waiting import until

INSERT = "insert into effect (event_id, key, n) values (%s, %s, %s)"


@pytest.fixture
def things(config: Config) -> Config:
    """A broker with the topics, and times a fiftieth of the real ones."""
    for topic in ("things", "testers.retry", "testers.dlq"):
        create_topic(config, topic, 4)
    return replace(config, retries=RetrySettings().scaled(0.02))


@pytest.fixture
def relay(things: Config, small: Project) -> Iterator[Relay]:
    relay = Relay(things, small)
    thread = threading.Thread(target=relay.run, daemon=True)
    thread.start()
    yield relay
    relay.stop()
    thread.join(30)


@pytest.fixture
def member(small: Project, things: Config, relay: Relay) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(handler: Any, *, exit_at_end: bool = False, **options: Any) -> Member:
        group = ConsumerGroup("testers", topics=["things"], **{"start": "beginning", **options})
        group.on("Happened")(handler)
        made.append(Member(group, small, things, exit_at_end=exit_at_end))
        return made[-1]

    yield make
    for each in made:
        each.processor.stop(1.0)
        until(lambda each=each: not each.running, 30)


def apply(event: Event, ctx: Context) -> None:
    ctx.db.execute(INSERT, [event.id, event.key, event.data["n"]])


def per_key(rows: list[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for key, n in rows:
        found[key].append(n)
    return found


def count(conn: psycopg.Connection[Any], table: str) -> int:
    [(found,)] = conn.execute(f"select count(*) from stream.{table}").fetchall()
    conn.commit()
    return int(found)


@pytest.mark.parametrize("batch", [1, 20])
def test_a_failing_event_holds_its_key_and_nothing_else_not_even_the_offset(
    member, small, things, effects, conn, batch
) -> None:
    heal = threading.Event()

    def handler(event: Event, ctx: Context) -> None:
        apply(event, ctx)
        if event.key == "bad" and event.data["n"] == 3 and not heal.is_set():
            raise TransientError("not yet")

    publish(things, small, [(key, n) for n in range(10) for key in ("bad", "good")])
    m = member(handler, batch=batch)
    until(lambda: per_key(effects())["good"] == list(range(10)))
    until(lambda: m.processor.counts["parked"] >= 9)
    assert per_key(effects())["bad"] == [0, 1, 2]
    heal.set()
    until(lambda: per_key(effects())["bad"] == list(range(10)), 60)
    until(lambda: count(conn, "parked") == 0)
    m.end()


@pytest.mark.parametrize("batch", [1, 20])
def test_a_first_failure_is_tried_again_from_memory_and_leaves_nothing_behind(
    member, small, things, effects, conn, batch
) -> None:
    attempts: dict[int, list[int]] = defaultdict(list)

    def handler(event: Event, ctx: Context) -> None:
        n = event.data["n"]
        attempts[n].append(ctx.attempt)
        apply(event, ctx)
        if n == 3 and len(attempts[n]) == 1:
            raise TransientError("not yet")

    conn.execute("create table seen (what text)")
    conn.execute(
        "create function note() returns trigger language plpgsql as"
        " $$ begin insert into seen values (tg_table_name); return null; end $$"
    )
    for table in ("parked", "scheduled", "outbox"):
        conn.execute(f"create trigger note after insert on stream.{table} execute function note()")
    conn.commit()
    publish(things, small, [(key, n) for n, key in enumerate("aabababbab")])
    m = member(handler, batch=batch)
    until(lambda: len(effects()) == 10)
    assert per_key(effects()) == {"a": [0, 1, 3, 5, 8], "b": [2, 4, 6, 7, 9]}
    assert attempts[3][-1] == 2
    assert conn.execute("select what from seen").fetchall() == []
    assert conn.execute("select count(*) from stream.ledger where attempts = 2").fetchone() == (1,)
    conn.commit()
    m.end()


def test_a_second_failure_is_parked_with_both_tries(member, small, things, effects, conn) -> None:
    heal = threading.Event()

    def handler(event: Event, ctx: Context) -> None:
        if not heal.is_set():
            raise ValueError(f"try {ctx.attempt}")
        apply(event, ctx)

    publish(things, small, [("a", 1)])
    m = member(handler, attempts=100)
    until(lambda: count(conn, "parked") == 1)
    [(errors, apart)] = conn.execute(
        "select errors, last_failed_at - first_failed_at > '0' from stream.parked"
    ).fetchall()
    conn.commit()
    assert [(error["attempt"], error["message"]) for error in errors][-2:] == [(2, "try 2"), (1, "try 1")]
    assert errors[-1]["at"] < errors[-2]["at"]
    assert apart
    heal.set()
    until(lambda: effects() == [("a", 1)])
    m.end()


@pytest.mark.parametrize("batch", [1, 50])
def test_random_failures_among_many_keys_lose_and_reorder_nothing(
    member, small, things, effects, conn, batch
) -> None:
    fails: Counter[int] = Counter()

    def handler(event: Event, ctx: Context) -> None:
        n = event.data["n"]
        apply(event, ctx)
        if n % 13 == 5 and fails[n] < 1 + n % 3:
            fails[n] += 1
            raise TransientError("not now") if n % 2 else ValueError("hm")

    publish(things, small, [(f"k{n % 17}", n) for n in range(400)])
    m = member(handler, batch=batch)
    until(lambda: len(effects()) >= 400, 60)
    until(lambda: count(conn, "parked") == 0)
    m.end()
    assert per_key(effects()) == {f"k{k}": [n for n in range(400) if n % 17 == k] for k in range(17)}
    assert count(conn, "dead_letter") == 0


def test_bad_bytes_end_in_the_dlq_as_they_came_and_all_others_go_on(
    member, small, things, effects, conn
) -> None:
    good = small.codec.encode("Happened", {"n": 1})
    bad = {
        b"random": b"\x17\x03garbage",
        b"unknown": b"\0\0\0\x27\x0f\x02",
        b"truncated": good[:-1],
        b"trailing": good + b"x",
        b"header": good,
        b"\xff\xfe": good,
    }
    odd = [("ce_type", b"\xff\xfe"), ("note", b"\x80"), ("note", None)]
    produce_raw(
        things, "things", [(key, value, odd if key == b"header" else None) for key, value in bad.items()]
    )
    publish(things, small, [(f"k{n}", n) for n in range(30)] + [("random", 99)])
    m = member(apply, exit_at_end=True)
    m.wait()
    assert sorted(n for _, n in effects()) == [*range(30), 99]
    until(lambda: len(read_all(things, "testers.dlq")) == len(bad))
    for message in read_all(things, "testers.dlq"):
        headers = message.headers() or []
        assert message.value() == bad[message.key()]
        if message.key() == b"header":
            assert headers[:3] == odd
        errors = {
            name.removeprefix("stream.error."): value
            for name, value in headers
            if name.startswith("stream.error.")
        }
        assert (errors["kind"], errors["stage"], errors["topic"]) == (b"decode", b"decode", b"things")


def test_a_key_that_never_succeeds_ends_in_the_dlq_and_its_followers_run(
    member, small, things, effects, conn
) -> None:
    def handler(event: Event, ctx: Context) -> None:
        apply(event, ctx)
        if event.key == "bad" and event.data["n"] == 0:
            raise ValueError("never")

    publish(things, small, [(key, n) for n in range(5) for key in ("bad", "good")])
    m = member(handler)
    until(lambda: per_key(effects())["bad"] == [1, 2, 3, 4], 60)
    m.end()
    assert conn.execute("select kind, attempts from stream.dead_letter").fetchall() == [("exhausted", 5)]
    until(lambda: len(read_all(things, "testers.dlq")) == 1)


def test_exit_at_end_names_the_keys_it_leaves_behind(member, small, things, effects) -> None:
    from stream.errors import PartlyDone

    def handler(event: Event, ctx: Context) -> None:
        if event.key == "bad":
            raise PermanentError("never")
        apply(event, ctx)

    publish(things, small, [(key, n) for n in range(5) for key in ("bad", "good")])
    with pytest.raises(PartlyDone, match="held: bad"):
        member(handler, exit_at_end=True, on_dead="hold").wait()
    assert per_key(effects()) == {"good": list(range(5))}


class Provider:
    """What a mail provider is to its group: it is there or not; it counts."""

    def __init__(self) -> None:
        self.down = threading.Event()
        self.asked: list[float] = []
        self.sent: list[tuple[str, int, float]] = []
        self._lock = threading.Lock()

    def __call__(self, event: Event, ctx: Context) -> None:
        with self._lock:
            self.asked.append(time.monotonic())
        if self.down.is_set():
            raise ConnectionRefusedError("no provider")
        with self._lock:
            self.sent.append((str(event.key), event.data["n"], time.monotonic()))
        apply(event, ctx)


def test_an_outage_kills_no_event_burns_no_attempt_and_ends_without_a_storm(
    member, small, things, effects, conn
) -> None:
    provider = Provider()
    provider.down.set()
    publish(things, small, [(f"k{n % 60}", n) for n in range(300)])
    first = member(provider, concurrency=4)
    until(lambda: first.processor._control.standing.hold == "breaker open")
    until(lambda: first.processor._control.probe_failures >= 3)
    first.end()
    asked = len(provider.asked)
    assert asked < 40
    second = member(provider, concurrency=4)
    until(lambda: second.processor._control.probe_failures >= 2)
    assert len(provider.asked) - asked < 10, "a restart asks no more than the probes do"
    parked = conn.execute("select coalesce(max(attempts), 0) from stream.parked").fetchall()
    conn.commit()
    back = time.monotonic()
    provider.down.clear()
    until(lambda: len(effects()) >= 300, 60)
    until(lambda: count(conn, "parked") == 0)
    second.end()
    assert per_key(effects()) == {f"k{k}": [n for n in range(300) if n % 60 == k] for k in range(60)}
    assert count(conn, "dead_letter") == 0
    assert parked[0][0] <= 2
    recovered = min(at for *_, at in provider.sent)
    ramp = things.retries.ramp_s
    # The probe, and as many as the group has handlers; what runs a little late is not held against it.
    assert sum(recovered <= at < recovered + ramp for at in provider.asked if at >= back) <= 1 + 4 + 8


def test_orders_that_come_rarely_open_the_breaker_too(member, small, things, effects, conn) -> None:
    provider = Provider()
    provider.down.set()
    publish(things, small, [("only", 0)])
    m = member(provider)
    until(lambda: m.processor._control.standing.hold == "breaker open", 30)
    provider.down.clear()
    until(lambda: len(effects()) == 1)
    m.end()
    assert count(conn, "dead_letter") == 0


def test_a_bad_deploy_halts_all_processes_with_about_ten_letters_and_goes_on_once_mended(
    member, small, things, effects, conn
) -> None:
    def broken(event: Event, ctx: Context) -> None:
        raise PermanentError("a bad deploy")

    publish(things, small, [(f"k{n}", n) for n in range(300)])
    for _ in range(3):
        members = [member(broken, concurrency=2) for _ in range(2)]
        for each in members:
            until(lambda each=each: each.processor._control.standing.hold == "halted")
        for each in members:
            each.end()
    assert 8 <= count(conn, "dead_letter") <= 12
    mended = member(apply)
    until(lambda: len(effects()) >= 300 - count(conn, "dead_letter"), 60)
    mended.end()
    assert len(effects()) + count(conn, "dead_letter") == 300
    assert conn.execute("select halted_at, halted_reason from stream.group_state").fetchall() == [
        (None, None)
    ]


def test_some_events_that_always_die_among_good_ones_halt_nobody(
    member, small, things, effects, conn
) -> None:
    def handler(event: Event, ctx: Context) -> None:
        if event.data["n"] % 10 == 0:
            raise PermanentError("never")
        apply(event, ctx)

    publish(things, small, [(f"k{n % 150}", n) for n in range(600)])
    m = member(handler, batch=20)
    until(lambda: len(effects()) >= 540 and count(conn, "dead_letter") >= 60, 60)
    m.end()
    assert (len(effects()), count(conn, "dead_letter")) == (540, 60)


def test_a_retry_topic_that_was_deleted_loses_nothing(member, small, things, effects, conn) -> None:
    from confluent_kafka.admin import AdminClient

    heal = threading.Event()

    def handler(event: Event, ctx: Context) -> None:
        if event.key == "bad" and not heal.is_set():
            raise TransientError("not yet")
        apply(event, ctx)

    m = member(handler)
    publish(things, small, [(key, n) for n in range(3) for key in ("bad", "good")])
    until(lambda: m.processor.counts["parked"] >= 4)
    admin = AdminClient({"bootstrap.servers": things.bootstrap_servers})
    name = things.prefix + "testers.retry"
    admin.delete_topics([name])[name].result(20)
    until(lambda: name not in admin.list_topics(timeout=10).topics)
    heal.set()
    until(lambda: conn.execute("select topic from stream.sick_topic").fetchall() or conn.commit(), 30)
    conn.commit()
    create_topic(things, "testers.retry", 4)
    until(lambda: per_key(effects())["bad"] == [0, 1, 2], 60)
    m.end()


def test_a_group_that_is_held_waits_without_turning_round(member, small, things, effects, conn) -> None:
    passes = 0
    m = member(apply)
    once = m.processor.run_once

    def counted() -> None:
        nonlocal passes
        passes += 1
        once()

    m.processor.run_once = counted
    until(lambda: count(conn, "group_state") == 1)
    conn.execute("update stream.group_state set paused_until = 'infinity'")
    conn.commit()
    until(lambda: m.processor._control.hold == "paused")
    publish(things, small, [(f"k{n}", n) for n in range(3)])
    until(lambda: m.processor._lanes.startable == 3)
    begun, before = time.monotonic(), passes
    until(lambda: time.monotonic() > begun + 1)
    assert passes - before < 100
    assert effects() == []
    conn.execute("update stream.group_state set paused_until = null")
    conn.commit()
    until(lambda: len(effects()) == 3)
    m.end()


def test_a_suspect_that_another_worker_still_holds_is_waited_for(
    member, small, things, effects, conn, database_url, monkeypatch
) -> None:
    """Its last owner's host is gone, and the session of it holds the key for a while."""
    monkeypatch.setattr("stream.suspects.IDLE_S", 0.2)
    blamed: list[int] = []

    def handler(event: Event, ctx: Context) -> None:
        with psycopg.connect(database_url) as other:
            [(rows,)] = other.execute("select count(*) from stream.suspect").fetchall()
        blamed.append(int(rows))
        apply(event, ctx)

    first = member(handler)
    until(lambda: len(first.processor._progress.partitions()) == 8)
    first.end()
    dead = RetryingWorker(small, database_url, never, name="dead-1")
    dead.run(record(small, "bad", 1))
    dead.execution.close()
    until(lambda: count(conn, "scheduled") + count(conn, "outbox") == 0)
    conn.execute("update stream.assignment set released_at = null, worker = 'dead'")
    conn.commit()
    with psycopg.connect(database_url) as frozen:
        frozen.execute("select stream.lock_lanes(%s)", [[lane_number("testers", "things", b"bad", 0)]])
        second = member(handler)
        until(lambda: bool(second.processor._suspects))
        until(lambda: second.processor._lanes.waits > 0)
        looks = second.processor._polled_at
        until(lambda: second.processor._polled_at > looks + 1)
        assert second.processor._suspects
        frozen.rollback()
    until(lambda: effects() == [("bad", 1)])
    assert blamed == [1]
    second.end()


def never(event: Event, ctx: Context) -> None:
    raise ValueError("no")
