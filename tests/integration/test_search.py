"""The records of one key, read past the groups."""

from __future__ import annotations

from threading import Event

from confluent_kafka import Producer

from stream.config import Config
from stream.kafka.search import records_of_key
from stream.keys import partition_of
from tests.support.topics import create_topic, produce_raw, read_all
from tests.support.waiting import until


def test_every_key_is_looked_for_where_the_relay_s_partitioner_put_it(config: Config) -> None:
    create_topic(config, "orders", partitions=7)
    keys = [f"{n}{'é' * (n % 4)}".encode() for n in range(200)]
    produce_raw(config, "orders", [(key, b"v", None) for key in keys])
    for message in read_all(config, "orders"):
        assert message.partition() == partition_of(message.key() or b"", 7)


def test_only_the_key_s_records_are_found_with_headers_and_time(config: Config) -> None:
    for topic in ("orders", "stock"):
        create_topic(config, topic)
        produce_raw(
            config,
            topic,
            [(b"a", b"1", [("h", b"x")]), (b"b", b"2", None), (None, b"3", None), (b"a", None, None)],
        )
    found = records_of_key(config, b"a", ["orders", "stock", "gone"], seconds=30)
    places = sorted((record.topic, record.offset, record.value) for record in found.records)
    assert places == [("orders", 0, b"1"), ("orders", 3, None), ("stock", 0, b"1"), ("stock", 3, None)]
    first = next(record for record in found.records if record.offset == 0)
    assert (first.headers, first.key) == ([("h", b"x")], b"a")
    assert first.timestamp > 1_700_000_000_000
    assert found.missing == ["gone"]
    assert [(scan.reached, scan.end, scan.complete) for scan in found.scans] == [(4, 4, True)] * 2


def test_reading_ends_at_the_ends_found_at_the_start_although_records_keep_coming(config: Config) -> None:
    create_topic(config, "orders")
    produce_raw(config, "orders", [(b"a", b"v", None)] * 10_000)
    rounds = 0

    def more(passed: int, total: int) -> None:
        nonlocal rounds
        rounds += 1
        produce_raw(config, "orders", [(b"a", b"v", None)] * 2000)

    found = records_of_key(config, b"a", ["orders"], seconds=30, progress=more)
    assert len(found.records) == 10_000
    assert [(scan.reached, scan.end) for scan in found.scans] == [(10_000, 10_000)]
    assert rounds < 30


def test_an_end_that_is_no_record_is_reached_too(config: Config) -> None:
    create_topic(config, "orders")
    producer = Producer(
        {"bootstrap.servers": config.bootstrap_servers, "transactional.id": config.prefix + "x"}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(config.prefix + "orders", b"v", b"a")
    producer.commit_transaction(20)  # the broker writes the mark of its end a moment later
    until(lambda: records_of_key(config, b"a", ["orders"], seconds=0).scans[0].end == 2)
    found = records_of_key(config, b"a", ["orders"], seconds=20)
    assert [scan.complete for scan in found.scans] == [True]
    assert [record.offset for record in found.records] == [0]


def test_when_the_time_is_over_it_says_how_far_it_got(config: Config) -> None:
    create_topic(config, "orders")
    produce_raw(config, "orders", [(b"a", b"v", None)] * 10)
    found = records_of_key(config, b"a", ["orders"], seconds=0)
    assert [(scan.first, scan.reached, scan.end, scan.complete) for scan in found.scans] == [
        (0, 0, 10, False)
    ]


def test_an_empty_topic_is_read_at_once(config: Config) -> None:
    create_topic(config, "orders", partitions=3)
    found = records_of_key(config, b"a", ["orders"], seconds=0)
    assert (found.records, found.scans[0].complete) == ([], True)


def test_when_it_is_told_to_stop_it_says_how_far_it_got(config: Config) -> None:
    create_topic(config, "orders")
    produce_raw(config, "orders", [(b"a", b"v", None)] * 20_000)
    stopping = Event()

    def stop_soon(passed: int, total: int) -> None:
        assert total == 20_000
        if passed:
            stopping.set()

    found = records_of_key(config, b"a", ["orders"], seconds=60, progress=stop_soon, stopping=stopping)
    [scan] = found.scans
    assert 0 < scan.reached < scan.end
    assert len(found.records) == scan.reached
