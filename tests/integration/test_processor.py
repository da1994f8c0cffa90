"""The loop of a group, on the real broker and database."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from stream import ConsumerGroup, Context, Event, StopGroup
from stream.config import Config
from stream.errors import CheckFailed, PartlyDone
from stream.project import Project
from tests.support.groups import Member, publish
from tests.support.small import make_project
from tests.support.topics import create_topic
from tests.support.waiting import until, waiting_for_a_lock

INSERT = "insert into effect (event_id, key, n) values (%s, %s, %s)"


@pytest.fixture
def small(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture
def things(config: Config, request: pytest.FixtureRequest) -> Config:
    """The configuration of a broker that has topic things, of 4 partitions, or as many as the test says."""
    for topic in ("things", "testers.retry", "testers.dlq"):
        create_topic(config, topic, getattr(request, "param", 4))
    return config


@pytest.fixture
def effects(conn: psycopg.Connection[Any]) -> Callable[[], list[tuple[str, int]]]:
    """The effect log, without a unique key: (key, n) in the order they were written."""
    conn.execute(
        "create table effect (seq bigint generated always as identity, event_id uuid, key text, n int not null)"
    )
    conn.commit()

    def read() -> list[tuple[str, int]]:
        rows = conn.execute("select key, n from effect order by seq").fetchall()
        conn.commit()
        return rows

    return read


@pytest.fixture
def member(small: Project, things: Config) -> Iterator[Callable[..., Member]]:
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


def committed(config: Config) -> dict[int, int]:
    consumer = Consumer(
        {"bootstrap.servers": config.bootstrap_servers, "group.id": config.prefix + "testers"}
    )
    found = consumer.committed([TopicPartition(config.prefix + "things", p) for p in range(4)], timeout=10)
    consumer.close()
    return {p.partition: p.offset for p in found if p.offset >= 0}


def per_key(rows: list[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for key, n in rows:
        found[key].append(n)
    return found


@pytest.mark.parametrize("batch", [1, 50])
def test_all_of_a_topic_is_applied_once_and_in_order_per_key(member, small, things, effects, batch) -> None:
    publish(things, small, [(f"k{n % 17}", n) for n in range(400)])
    m = member(apply, batch=batch)
    until(lambda: len(effects()) >= 400)
    publish(things, small, [(f"k{n % 17}", n) for n in range(400, 500)])
    until(lambda: len(effects()) >= 500)
    m.end()
    assert per_key(effects()) == {f"k{k}": [n for n in range(500) if n % 17 == k] for k in range(17)}
    assert sum(committed(things).values()) == 500
    assert m.processor.counts == {"done": 500}


def test_what_was_committed_is_not_read_again(member, small, things, effects) -> None:
    publish(things, small, [(f"k{n}", n) for n in range(50)])
    m = member(apply)
    until(lambda: len(effects()) == 50)
    m.end()
    publish(things, small, [("more", 50)])
    m = member(apply)
    until(lambda: len(effects()) == 51)
    m.end()
    assert m.processor.counts == {"done": 1}


def test_a_slow_key_holds_no_other_however_many_of_its_records_wait(member, small, things, effects) -> None:
    go_on = threading.Event()

    def handler(event: Event, ctx: Context) -> None:
        if event.key == "slow":
            assert go_on.wait(30)
        apply(event, ctx)

    publish(things, small, [("slow", n) for n in range(500)])
    publish(things, small, [(f"k{n}", n) for n in range(100)])
    m = member(handler, concurrency=2)
    until(lambda: len(effects()) == 100)
    go_on.set()
    until(lambda: len(effects()) == 600, 60)
    m.end()
    assert per_key(effects())["slow"] == list(range(500))


def test_two_runs_of_a_key_are_never_under_way_together(member, small, things, effects) -> None:
    inside: dict[str, int] = defaultdict(int)
    lock, most = threading.Lock(), [0, 0]

    def handler(event: Event, ctx: Context) -> None:
        with lock:
            inside[event.key] += 1
            most[0] = max(most[0], inside[event.key])
            most[1] = max(most[1], sum(inside.values()))
        apply(event, ctx)
        ctx.db.execute("select pg_sleep(0.002)")
        with lock:
            inside[event.key] -= 1

    publish(things, small, [(f"k{n % 5}", n) for n in range(200)])
    m = member(handler)
    until(lambda: len(effects()) == 200)
    m.end()
    assert most[0] == 1
    assert most[1] > 1, "keys should run side by side"


def test_a_run_that_waits_holds_no_other_key_of_a_batch_group(member, small, things, effects) -> None:
    """Also where the runs before it computed, so that a second worker was not worth it."""
    with psycopg.connect(things.database_url) as lock:
        lock.execute("select pg_advisory_lock(4711)")

        def handler(event: Event, ctx: Context) -> None:
            sum(range(60_000))  # computes
            if event.key == "slow":
                ctx.db.execute("select pg_advisory_xact_lock(4711)").fetchall()
            apply(event, ctx)

        publish(things, small, [(f"k{n % 50}", n) for n in range(400)])
        member(handler, batch=10)
        until(lambda: len(effects()) == 400)
        publish(things, small, [("slow", 0)])
        until(lambda: waiting_for_a_lock(things.database_url) == 1)
        publish(things, small, [(f"k{n % 50}", n) for n in range(400, 800)])
        until(lambda: len(effects()) >= 750, 8)  # the last few of a batch group wait for more
    until(lambda: len(effects()) == 801, 40)


# -- starts ------------------------------------------------------------------------------------------------------


def test_a_group_that_starts_at_the_end_sees_only_what_comes_after_its_first_start(
    member, small, things, effects
) -> None:
    publish(things, small, [(f"k{n}", n) for n in range(20)])
    m = member(apply, start="end")
    until(lambda: len(committed(things)) == 4)
    m.end()
    publish(things, small, [(f"k{n}", n) for n in range(20, 40)])  # while it is down: after its first start
    m = member(apply, start="end")
    until(lambda: len(effects()) == 20)
    m.end()
    assert sorted(n for _, n in effects()) == list(range(20, 40))


def test_lost_offsets_of_a_known_group_start_over_and_the_ledger_skips_what_was_applied(
    member, small, things, effects
) -> None:
    from confluent_kafka.admin import AdminClient

    publish(things, small, [(f"k{n}", n) for n in range(30)])
    m = member(apply)
    until(lambda: len(effects()) == 30)
    m.end()
    admin = AdminClient({"bootstrap.servers": things.bootstrap_servers})
    admin.delete_consumer_groups([things.prefix + "testers"])[things.prefix + "testers"].result(20)
    m = member(apply, exit_at_end=True)
    m.wait()
    assert m.processor.counts == {"duplicate": 30}
    assert len(effects()) == 30


def test_a_partition_added_later_starts_at_its_beginning_even_for_a_group_that_began_at_the_end(
    member, small, things, effects
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    m = member(apply, start="end")
    until(lambda: len(committed(things)) == 4)
    m.end()
    admin = AdminClient({"bootstrap.servers": things.bootstrap_servers})
    name = things.prefix + "things"
    admin.create_partitions([NewPartitions(name, 5)])[name].result(20)
    until(lambda: len(admin.list_topics(name, timeout=10).topics[name].partitions) == 5)
    keys = [f"k{n}" for n in range(40)]
    publish(things, small, [(key, 1) for key in keys])
    m = member(apply, start="end")
    until(lambda: len(effects()) == 40)
    m.end()


def test_records_that_retention_took_are_a_gap_on_record_and_the_group_goes_on(
    member, small, things, effects, conn
) -> None:
    from confluent_kafka.admin import AdminClient

    publish(things, small, [("a", n) for n in range(10)])
    m = member(apply)
    until(lambda: len(effects()) == 10)
    m.end()
    publish(things, small, [("a", n) for n in range(10, 20)])
    admin = AdminClient({"bootstrap.servers": things.bootstrap_servers})
    name = things.prefix + "things"
    [p] = [p for p, offset in committed(things).items() if offset == 10]
    admin.delete_records([TopicPartition(name, p, 15)])[TopicPartition(name, p, 15)].result(20)
    m = member(apply, exit_at_end=True)
    m.wait()
    assert [n for _, n in effects()] == [*range(10), *range(15, 20)]
    assert conn.execute("select topic, partition, from_offset, to_offset from stream.gap").fetchall() == [
        ("things", p, 10, 15)
    ]


def test_a_topic_created_again_stops_the_group(member, small, things, effects) -> None:
    from confluent_kafka.admin import AdminClient

    publish(things, small, [(f"k{n}", n) for n in range(30)])
    m = member(apply)
    until(lambda: len(effects()) == 30)
    admin = AdminClient({"bootstrap.servers": things.bootstrap_servers})
    name = things.prefix + "things"
    admin.delete_topics([name])[name].result(20)
    until(lambda: name not in admin.list_topics(timeout=10).topics)
    create_topic(things, "things", 4)
    publish(things, small, [(f"k{n}", n) for n in range(30)])
    with pytest.raises(Exception, match="deleted and created again"):
        m.wait(60)
    assert len(effects()) == 30
    with pytest.raises(Exception, match="deleted and created again"):
        member(apply).wait(30)


def test_a_missing_topic_is_said_before_anything_starts(member, small, things) -> None:
    group = ConsumerGroup("testers", topics=["things", "echoes"], start="beginning")
    group.on("Happened")(apply)
    with pytest.raises(CheckFailed, match="echoes"):
        Member(group, small, things).wait()


# -- ends --------------------------------------------------------------------------------------------------------


def test_exit_at_end_reads_what_was_there_at_the_start_and_ends(member, small, things, effects) -> None:
    publish(things, small, [(f"k{n}", n) for n in range(100)])
    m = member(apply, exit_at_end=True, batch=10)
    m.wait()
    assert len(effects()) == 100
    assert sum(committed(things).values()) == 100
    member(apply, exit_at_end=True).wait(10)  # nothing left: at once


def test_exit_at_end_names_the_keys_that_still_fail(member, small, things, effects) -> None:
    def handler(event: Event, ctx: Context) -> None:
        if event.key == "bad":
            raise ValueError("never")
        apply(event, ctx)

    publish(things, small, [(key, n) for n in range(5) for key in ("bad", "good")])
    with pytest.raises(PartlyDone, match="bad"):
        member(handler, exit_at_end=True).wait()
    assert per_key(effects()) == {"good": list(range(5))}


def test_a_handler_that_stops_the_group_halts_it_with_its_offset_kept(
    member, small, things, effects, conn
) -> None:
    def handler(event: Event, ctx: Context) -> None:
        if event.data["n"] == 5:
            raise StopGroup("enough")
        apply(event, ctx)

    publish(things, small, [("a", n) for n in range(10)])
    m = member(handler)
    until(lambda: m.processor._control.standing.hold == "halted")
    assert conn.execute("select halted_reason from stream.group_state").fetchall() == [
        ("a handler stopped the group: enough",)
    ]
    assert [n for _, n in effects()] == list(range(5))
    m.end()
    assert sum(committed(things).values()) == 5
    with pytest.raises(PartlyDone, match=r"halted.*enough"):
        member(handler, exit_at_end=True).wait()
    assert [n for _, n in effects()] == list(range(5))


def test_a_stop_waits_for_what_has_started_and_commits_it(member, small, things, effects) -> None:
    started, go_on = threading.Event(), threading.Event()

    def handler(event: Event, ctx: Context) -> None:
        started.set()
        assert go_on.wait(20)
        apply(event, ctx)

    publish(things, small, [("a", n) for n in range(10)])
    m = member(handler)
    assert started.wait(20)
    m.processor.stop()
    go_on.set()
    m.wait()
    assert [n for _, n in effects()] == [0]
    assert sum(committed(things).values()) == 1


def test_a_handler_that_does_not_return_is_left_behind_at_the_deadline(
    member, small, things, effects
) -> None:
    started, never = threading.Event(), threading.Event()

    def handler(event: Event, ctx: Context) -> None:
        started.set()
        never.wait(30)

    publish(things, small, [("a", 0)])
    m = member(handler)
    assert started.wait(20)
    before = time.monotonic()
    m.processor.stop(2.0)
    m.wait()
    assert time.monotonic() - before < 4
    assert sum(committed(things).values()) == 0
    never.set()


# -- several members -----------------------------------------------------------------------------------------------


def test_members_join_and_leave_under_load_without_a_double_or_a_disorder(
    member, small, things, effects
) -> None:
    total = 8000

    def handler(event: Event, ctx: Context) -> None:
        apply(event, ctx)
        ctx.db.execute("select pg_sleep(0.005)")

    publish(things, small, [(f"k{n % 40}", n) for n in range(total)])
    first = member(handler)
    until(lambda: len(effects()) > 200)
    second = member(handler)
    until(lambda: second.processor.counts["done"] > 100)
    third = member(handler)
    until(lambda: third.processor.counts["done"] > 50)
    second.end()
    until(lambda: len(effects()) >= total, 60)
    first.end()
    third.end()
    assert per_key(effects()) == {f"k{k}": [n for n in range(total) if n % 40 == k] for k in range(40)}
    assert sum(committed(things).values()) == total


def test_the_assignment_is_on_record(member, small, things, conn) -> None:
    m = member(apply)
    read = "select partition, released_at is null from stream.assignment where topic = 'things' order by partition"

    def rows() -> list[tuple[Any, ...]]:
        found = conn.execute(read).fetchall()
        conn.commit()
        return found

    until(lambda: rows() == [(p, True) for p in range(4)])
    m.end()
    assert rows() == [(p, False) for p in range(4)]


@pytest.mark.parametrize("things", [32], indirect=True)
def test_what_a_dead_member_had_goes_on_without_a_wait_for_each_partition(
    member, small, things, effects, conn
) -> None:
    publish(things, small, [("a", 1)])
    m = member(apply)
    until(lambda: effects() == [("a", 1)])
    m.end()
    conn.execute("update stream.assignment set released_at = null")  # as if it had been killed
    conn.commit()
    publish(things, small, [("a", 2)])
    m = member(apply)
    # Each of the 64 logs is looked at; at one that is being read, that takes up to a second.
    until(lambda: len(effects()) == 2, 15)


def test_an_unreachable_database_is_waited_for(member, small, things, effects, conn) -> None:
    publish(things, small, [(f"k{n}", n) for n in range(200)])
    m = member(apply, batch=5)
    for _ in range(5):
        before = len(effects())
        conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        conn.commit()
        until(lambda before=before: len(effects()) > min(before, 199))
    until(lambda: len(effects()) >= 200)
    m.end()
    assert sorted(n for _, n in effects()) == list(range(200))


def test_a_full_group_still_takes_part_in_rebalances(member, small, things, effects) -> None:
    go_on = threading.Event()

    def slow(event: Event, ctx: Context) -> None:
        assert go_on.wait(60)
        apply(event, ctx)

    publish(things, small, [(f"k{n}", n) for n in range(400)])
    first = member(slow, concurrency=1)
    until(lambda: first.processor._paused)
    second = member(apply, concurrency=2)  # one waits for the claim of what the first is still at
    until(lambda: second.processor.counts["done"] > 50, 60)  # the first waits up to 20 s for what has started
    go_on.set()
    until(lambda: len(effects()) >= 400)
    first.end()
    second.end()
    assert sorted(n for _, n in effects()) == list(range(400))


def test_retention_that_overtakes_a_running_member_is_a_gap_too(member, small, things, effects, conn) -> None:
    from confluent_kafka.admin import AdminClient

    go_on = threading.Event()

    def handler(event: Event, ctx: Context) -> None:
        assert go_on.wait(60)
        apply(event, ctx)

    publish(things, small, [(f"k{n}", n) for n in range(3000)])
    m = member(handler, concurrency=1)
    until(lambda: m.processor._paused)
    admin = AdminClient({"bootstrap.servers": things.bootstrap_servers})
    name = things.prefix + "things"
    cut = [TopicPartition(name, p, 600) for p in range(4)]
    for future in admin.delete_records(cut).values():
        future.result(20)
    go_on.set()
    total = sum(consumer_end - 600 for consumer_end in ends(things).values())
    until(lambda: len(effects()) >= total, 60)
    until(lambda: sum(committed(things).values()) == 3000)
    m.end()
    gaps = conn.execute("select partition, to_offset from stream.gap order by partition").fetchall()
    assert gaps
    assert {to for _, to in gaps} == {600}
    applied = [n for _, n in effects()]
    assert len(applied) == len(set(applied))


def ends(config: Config) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": config.bootstrap_servers, "group.id": "looks"})
    name = config.prefix + "things"
    found = {p: consumer.get_watermark_offsets(TopicPartition(name, p), timeout=10)[1] for p in range(4)}
    consumer.close()
    return found
