"""topics.toml: what a topic carries and how it is kept; every mistake named by file and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stream.errors import SchemaError, UnknownEventType
from stream.topics import Topic, TopicCatalog, dlq_topic, duration_ms, retry_topic

ORDERS = {"events": ["OrderPlaced", "OrderPaid"], "partitions": 12}


def refused(content: Any, events: list[str] | None = None) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        TopicCatalog.parse(content, "topics.toml", events)
    return caught.value


def test_a_topic_says_its_events_and_how_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "topics.toml"
    path.write_text(
        """
        [orders]
        events = ["OrderPlaced", "OrderPaid"]
        partitions = 12
        retention = "365d"
        replication = 3
        min_insync = 2
        cleanup = "compact,delete"
        [orders.config]
        "max.message.bytes" = 2_000_000
        "unclean.leader.election.enable" = false
        "compression.type" = "producer"

        [stock]
        events = ["StockLow"]
        partitions = 6
        """
    )
    catalog = TopicCatalog.load(path, ["OrderPlaced", "OrderPaid", "StockLow"])
    assert catalog.topics == {
        "orders": Topic(
            name="orders",
            events=("OrderPlaced", "OrderPaid"),
            partitions=12,
            retention_ms=365 * 24 * 3600 * 1000,
            replication=3,
            min_insync=2,
            cleanup="compact,delete",
            config={
                "max.message.bytes": "2000000",
                "unclean.leader.election.enable": "false",
                "compression.type": "producer",
            },
        ),
        "stock": Topic("stock", ("StockLow",), 6),
    }
    assert catalog.topic_of("OrderPaid") == "orders"
    assert catalog.topic_of("StockLow") == "stock"


def test_an_event_of_no_topic_is_unknown() -> None:
    with pytest.raises(UnknownEventType, match=r"expected an event type of topics.toml, got 'Nothing'"):
        TopicCatalog.parse({"orders": ORDERS}).topic_of("Nothing")


def test_groups_have_a_retry_and_a_dead_letter_topic() -> None:
    assert retry_topic("email") == "email.retry"
    assert dlq_topic("email") == "email.dlq"


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("365d", 31_536_000_000),
        ("12h", 43_200_000),
        ("30 m", 1_800_000),
        ("45s", 45_000),
        ("500ms", 500),
        ("2w", 1_209_600_000),
        (86_400_000, 86_400_000),
        (-1, -1),
        (0, None),
        (-2, None),
        (2**63, None),
        ("0d", None),
        ("-1d", None),
        ("1.5h", None),
        ("1y", None),
        ("d", None),
        ("٣d", None),
        ("999999999999999w", None),
        ("", None),
        (True, None),
        (1.5, None),
        (None, None),
    ],
)
def test_durations(value: object, milliseconds: int | None) -> None:
    assert duration_ms(value) == milliseconds


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"orders": 7}, "orders: expected a table [orders]"),
        ({"orders": {**ORDERS, "partition": 1}}, "orders.partition: unknown key (did you mean partitions?)"),
        ({"orders": {**ORDERS, "zzz": 1}},
         "orders.zzz: unknown key (known: events, partitions, retention, replication, min_insync, cleanup, "
         "config)"),
        ({"orders": {"partitions": 1}},
         'orders.events: expected a list of event types, such as ["OrderPlaced"]'),
        ({"orders": {**ORDERS, "events": "A"}}, "orders.events: expected a list of event types"),
        ({"orders": {**ORDERS, "events": ["A", 1]}}, "orders.events: expected a list of event types"),
        ({"orders": {"events": []}},
         "orders.partitions: expected a whole number from 1 to 100000, got nothing"),
        ({"orders": {**ORDERS, "partitions": 0}},
         "orders.partitions: expected a whole number from 1 to 100000, got 0"),
        ({"orders": {**ORDERS, "partitions": True}}, "orders.partitions: expected a whole number"),
        ({"orders": {**ORDERS, "replication": 0}}, "orders.replication: expected a whole number from 1"),
        ({"orders": {**ORDERS, "min_insync": "2"}}, "orders.min_insync: expected a whole number from 1"),
        ({"orders": {**ORDERS, "retention": "1 year"}}, "orders.retention: expected a duration such as"),
        ({"orders": {**ORDERS, "cleanup": "deleet"}},
         "orders.cleanup: expected one of delete; compact; compact,delete"),
        ({"orders": {**ORDERS, "config": []}}, "orders.config: expected a table [orders.config]"),
        ({"orders": {**ORDERS, "config": {"retention.ms": 1}}},
         "orders.config.retention.ms: say it as orders.retention"),
        ({"orders": {**ORDERS, "config": {"max": {"message": {"bytes": 1}}}}},
         'orders.config.max: expected text, a number, true or false (write names with dots in quotes'),
        ({"or ders": ORDERS}, "[or ders]: a topic name has 1 to 249 of a-z A-Z 0-9 . _ -"),
        ({"o" * 250: ORDERS}, f"[{'o' * 60}]: a topic name has"),
        ({"..": ORDERS}, "[..]: a topic name has"),
        ({"": ORDERS}, "[]: a topic name has"),
        ({"__orders": ORDERS}, "[__orders]: a topic name has"),
        ({"email.retry": ORDERS}, "[email.retry]: names that end in .retry or .dlq belong to the groups"),
        ({"orders": {**ORDERS, "events": ["A", "A"]}}, "orders.events: A is twice"),
        ({"orders": ORDERS, "other": {**ORDERS, "events": ["OrderPaid"]}},
         "other.events: OrderPaid is in orders already; an event has one topic"),
    ],
)  # fmt: skip
def test_mistakes_are_named_by_their_key(content: Any, message: str) -> None:
    error = refused(content)
    assert error.path == "topics.toml"
    assert str(error).startswith(f"topics.toml: {message}")


def test_topics_and_schemas_must_agree() -> None:
    error = refused({"orders": ORDERS}, ["OrderPlaced", "OrderPayd"])
    assert error.message == "topics.toml: orders.events: OrderPaid has no schema (did you mean OrderPayd?)"
    assert error.hint == "stream schema new OrderPaid"
    error = refused({"orders": ORDERS}, ["OrderPlaced", "OrderPaid", "StockLow", "Late"])
    assert error.message == "topics.toml: Late, StockLow in no topic; name it in the `events` of one"


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "topics.toml"
    with pytest.raises(SchemaError, match=r"topics.toml: no such file"):
        TopicCatalog.load(path)
    path.write_text("[orders")
    with pytest.raises(SchemaError, match=r"topics.toml: is no TOML: "):
        TopicCatalog.load(path)
    path.write_bytes(b'[orders]\nevents = ["\xff"]')
    with pytest.raises(SchemaError, match=r"topics.toml: is no TOML: 'utf-8' codec"):
        TopicCatalog.load(path)
