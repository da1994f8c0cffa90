"""The relay in this process, on a real outbox and real topics: what arrives, in which order, from which rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Message

from stream.config import Config
from stream.project import Project
from stream.relay import Relay
from tests.support.small import make_project
from tests.support.topics import create_topic, read_all
from tests.support.truth import Truth, append_bytes, keys_of_one_shard
from tests.support.waiting import until

Conn = psycopg.Connection[Any]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "small")


def values(project: Project, messages: list[Message]) -> list[tuple[bytes | None, int]]:
    return [(message.key(), project.codec.decode(message.value() or b"")[1]["n"]) for message in messages]


def test_an_event_arrives_as_avro_with_its_cloudevents_headers(
    truth: Truth, relay: Relay, config: Config, project: Project, conn: Conn
) -> None:
    time = datetime(2026, 8, 2, 12, 0, 0, 123456, tzinfo=UTC)
    id = truth.outbox.append(
        conn, "Happened", key="Zoë", data={"n": 7}, time=time, headers={"traceparent": "00-ab"}
    )
    conn.commit()
    assert relay.run_until_empty().published == 1
    [message] = read_all(config, "things")
    assert values(project, [message]) == [("Zoë".encode(), 7)]
    assert message.headers() == [
        ("ce_specversion", b"1.0"),
        ("ce_id", str(id).encode()),
        ("ce_source", b"/stream/outbox"),
        ("ce_type", b"Happened"),
        ("ce_time", b"2026-08-02T12:00:00.123456+00:00"),
        ("content-type", b"application/avro"),
        ("traceparent", b"00-ab"),
    ]
    assert conn.execute("select count(*) from stream.outbox").fetchone() == (0,)


def test_producers_are_open_before_the_first_row_comes(relay: Relay) -> None:
    def opened() -> bool:
        relay.run_once()
        return all(publisher.opened for publisher in relay.publishers.values())

    until(opened)


def test_an_event_from_plain_sql_arrives_with_the_same_bytes(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    conn.execute("""select stream.append('Happened', '1', '{"n": 7}', id => 'a', headers => '{"h": "x"}')""")
    truth.outbox.append(conn, "Happened", key="1", data={"n": 7}, id="b", headers={"h": "x"})
    conn.commit()
    relay.run_until_empty()
    sql, python = read_all(config, "things")
    assert (sql.key(), sql.value()) == (python.key(), python.value())
    assert [name for name, _ in sql.headers() or ()] == [name for name, _ in python.headers() or ()]


def test_a_row_without_a_key_and_a_tombstone_and_ready_made_headers_are_published_as_they_are(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    """What retries, dead letters and deletes are made of."""
    append_bytes(conn, "things", None, b"\x01")
    append_bytes(conn, "things", b"\x00\xff", None, [("ce_id", b"a"), ("other", b"\xff"), ("other", None)])
    conn.commit()
    assert relay.run_until_empty().published == 2
    by_key = {message.key(): message for message in read_all(config, "things")}
    assert by_key[None].value() == b"\x01"
    tombstone = by_key[b"\x00\xff"]
    assert tombstone.value() is None
    assert tombstone.headers() == [("ce_id", b"a"), ("other", b"\xff"), ("other", None)]


def test_each_keys_events_arrive_in_commit_order_however_many_there_are(
    truth: Truth, relay: Relay, config: Config, project: Project, conn: Conn
) -> None:
    """More than a read takes, of one key among others: the next row of a key leaves on an acknowledgement."""
    events = [
        {"type": "Happened", "key": key, "data": {"n": n}} for n in range(1000) for key in ("hot", f"k{n}")
    ]
    truth.outbox.append_many(conn, events)
    conn.commit()
    assert relay.run_until_empty().published == 2000
    arrived = values(project, read_all(config, "things"))
    assert [n for key, n in arrived if key == b"hot"] == list(range(1000))
    assert len(arrived) == 2000


def test_a_hot_key_with_a_deep_backlog_keeps_its_shards_other_keys_waiting_no_longer_than_a_few_passes(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    """Its later rows are left out while its queue is long; and they are not walked over in every pass."""
    hot, *neighbours = keys_of_one_shard(conn, 11)
    many = [{"type": "Happened", "key": hot, "data": {"n": n}} for n in range(3000)]
    truth.outbox.append_many(
        conn, [*many, *({"type": "Happened", "key": key, "data": {"n": 0}} for key in neighbours)]
    )
    conn.commit()
    before = None
    while waiting(conn, neighbours):
        relay.run_once()
        before = before or index_entries_read(relay, conn)
    assert waiting(conn, [hot]) > 1500
    assert before is not None
    while waiting(conn, [hot]):
        relay.run_once()
    assert index_entries_read(relay, conn) - before < 6 * 3000, (
        "the read, the delete, and now and then the way there"
    )
    arrived = values(truth.project, read_all(config, "things"))
    assert [n for key, n in arrived if key == hot.encode()] == list(range(3000))


def waiting(conn: Conn, keys: list[str]) -> int:
    """Rows of these keys, counted without the index."""
    conn.execute(
        "set local enable_indexscan = off; set local enable_bitmapscan = off; set local enable_indexonlyscan = off"
    )
    [(rows,)] = conn.execute(
        "select count(*) from stream.outbox where convert_from(key, 'UTF8') = any (%s)", [keys]
    )
    conn.rollback()
    return int(rows)


def test_after_its_session_was_lost_it_looks_at_everything_again(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    """A crash of the server may bring rows back whose delete was not on disk yet, below every floor."""
    truth.commit(*(f"k{n}" for n in range(20)))
    publish(relay, 20)
    shard = 5
    truth.commit(*keys_of_one_shard(conn, 3))
    publish(relay, 3)
    until(
        lambda: relay.run_once() and relay._unpublished._place(("things", shard)).floor > 0,
        5,
        "the floor rises",
    )
    conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'stream-relay'"
        " and datname = current_database()"
    )
    conn.execute(
        """insert into stream.outbox (id, topic, key, event_id, type, "time", payload) overriding system value
           values (1, 'things', %s, gen_random_uuid(), 'Happened', now(), '\\x00')""",
        [keys_of_one_shard(conn, 1)[0].encode()],
    )
    conn.commit()
    until(
        lambda: relay._run_through_outage() and waiting(conn, keys_of_one_shard(conn, 1)) == 0,
        10,
        "it is read again",
    )


def test_events_of_a_topic_that_the_project_does_not_declare_are_found(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    create_topic(config, "aside")
    create_topic(config, "zzz")
    for topic in ("aside", "things", "zzz"):
        append_bytes(conn, topic, b"k", b"\x01")
    conn.commit()
    assert relay.run_until_empty().published == 3
    assert [len(read_all(config, topic)) for topic in ("aside", "things", "zzz")] == [1, 1, 1]


def test_an_uncommitted_event_is_published_once_it_commits_though_later_ids_were_published_before(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    """The same shard and topic: a cursor over ids would pass it by."""
    sitting, *others = keys_of_one_shard(conn, 4)
    truth.append(conn, sitting)
    truth.commit(*others)
    assert relay.run_until_empty().published == 3, "and --once does not wait for it"
    running = Relay(config, truth.project)
    for _ in range(5):
        running.run_once()
    conn.commit()
    publish(running, 1)
    running.drain(5)
    assert truth.check() == 0


def test_an_old_snapshot_does_not_make_reads_walk_over_what_is_published(
    truth: Truth, relay: Relay, config: Config, database_url: str, conn: Conn
) -> None:
    """It keeps 4,000 deleted rows in the index; the floors let reads and the search for topics begin behind them."""
    with psycopg.connect(database_url) as unrelated:
        unrelated.execute("create table unrelated as select pg_current_xact_id()")
        for start in range(0, 4000, 1000):
            many = [{"type": "Happened", "key": str(n), "data": {"n": n}} for n in range(start, start + 1000)]
            truth.outbox.append_many(conn, many)
            conn.commit()
            publish(relay, 1000)
        until(lambda: entries_read_for_one_event(truth, relay, conn) < 1000, 10, "floors rise")


def entries_read_for_one_event(truth: Truth, relay: Relay, conn: Conn) -> int:
    before = index_entries_read(relay, conn)
    truth.commit("one more")
    publish(relay, 1)
    return index_entries_read(relay, conn) - before


def index_entries_read(relay: Relay, conn: Conn) -> int:
    """Of the outbox, by all sessions that have told the statistics; the relay's does at once."""
    assert relay._session is not None
    relay._session.connection.execute("select pg_stat_force_next_flush()")
    [(reads,)] = conn.execute(
        "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'outbox_pkey'"
    )
    conn.rollback()
    return int(reads)


def publish(relay: Relay, count: int) -> None:
    """Passes until so many rows are published, and one that finds nothing."""
    published = 0
    while published < count:
        published += relay.run_once().published
    relay.run_once()


def test_large_rows_are_held_in_memory_by_their_bytes_and_all_arrive(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    for n in range(60):
        append_bytes(conn, "things", str(n % 20).encode(), bytes([n]) * 900_000)
    conn.commit()
    held = 0
    for _ in range(4):  # the topic is being looked up: nothing leaves yet
        relay.run_once()
        held = max(held, relay.publishers["things"]._bytes)
    assert 0 < held <= 25_000_000
    relay.run_until_empty()
    arrived: dict[bytes, list[int]] = {}
    for message in read_all(config, "things"):
        arrived.setdefault(message.key() or b"", []).append((message.value() or b"\0")[0])
    assert sum(map(len, arrived.values())) == 60
    assert all(ns == sorted(ns) for ns in arrived.values())


def test_a_note_of_a_sick_topic_that_nobody_stands_by_is_removed(
    truth: Truth, relay: Relay, conn: Conn
) -> None:
    """Left by a relay that died: the topic was mended meanwhile, or its rows are gone."""
    append_bytes(conn, "nowhere", b"k", b"1")
    for topic in ("things", "echoes", "nowhere"):
        conn.execute("insert into stream.sick_topic values (%s, 'some reason', '2026-01-01')", [topic])
    conn.commit()
    truth.commit("k")
    assert set(relay.run_until_empty().sick) == {"nowhere"}
    assert conn.execute(
        "select topic, reason, since < now() - interval '1 day' from stream.sick_topic"
    ).fetchall() == [("nowhere", "the topic does not exist", True)]


def test_the_json_of_the_rows_read_keeps_every_digit(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    largest = 2**63 - 1
    conn.execute("select stream.append('Happened', '1', %s)", [json.dumps({"n": largest})])
    conn.commit()
    relay.run_until_empty()
    assert values(truth.project, read_all(config, "things")) == [(b"1", largest)]


@pytest.mark.parametrize(
    "set_back",
    ["truncate stream.outbox restart identity", "alter table stream.outbox alter id restart with 1"],
)
def test_rows_are_found_after_the_sequence_was_set_back(
    truth: Truth, relay: Relay, conn: Conn, set_back: str
) -> None:
    truth.commit(*[f"k{n}" for n in range(30)])
    publish(relay, 30)
    until(lambda: not relay.run_once().worked and relay.run_once().read == 0)
    conn.execute(set_back)
    conn.commit()
    truth.commit("z1", "z2", "z3")
    until(lambda: relay.run_once().published and truth.unpublished() == 0)
