"""A trace goes with an order: from its transaction through every try to what is emitted, and to its dead letter."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from stream import ConsumerGroup, Context, Event, Outbox, PermanentError, TransientError, app, logs
from stream.config import Config, RetrySettings
from stream.events import trace_id
from stream.lanes import Run
from stream.outcomes import Outcome
from stream.project import Project
from stream.relay import Relay
from tests.support.groups import Member
from tests.support.retries import RetryingWorker
from tests.support.small import record
from tests.support.topics import create_topic, read_all
from tests.support.waiting import until

ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{ID}-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"
TRACED = {"traceparent": PARENT, "tracestate": "shop=1"}


@pytest.fixture
def things(config: Config, small: Project) -> Config:
    """A broker with the topics, and times a fiftieth of the real ones."""
    app.migrate(config, small)
    for topic in ("testers.retry", "testers.dlq"):
        create_topic(config, topic, 2)
    return replace(config, retries=RetrySettings().scaled(0.02))


@pytest.fixture
def relaying(things: Config, small: Project) -> Iterator[None]:
    relay = Relay(things, small)
    thread = threading.Thread(target=relay.run, daemon=True)
    thread.start()
    yield
    relay.stop()
    thread.join(30)
    relay.drain(0)


def headers_of(config: Config, topic: str) -> dict[str, dict[str, bytes]]:
    """By key, of each record of the topic."""
    return {(m.key() or b"").decode(): dict(m.headers() or ()) for m in read_all(config, topic)}


def test_a_trace_goes_from_the_transaction_through_a_retry_to_what_is_emitted_and_to_a_letter(
    things: Config, small: Project, relaying: None, conn: psycopg.Connection[Any], capsys: Any
) -> None:
    seen: list[tuple[str | None, int, str | None]] = []

    def handler(event: Event, ctx: Context) -> None:
        seen.append((event.key, ctx.attempt, event.traceparent))
        ctx.log.info("handling")
        if event.key == "dies":
            raise PermanentError("never")
        if event.key == "retried" and ctx.attempt == 1:
            raise TransientError("not yet", retry_after=0.1)  # parked: it comes back through the retry topic
        ctx.emit("Echoed", key=event.key or "", data={"n": 1})

    logs.configure(format="json")
    outbox = Outbox(small)
    outbox.append(conn, "Happened", key="retried", data={"n": 1}, headers=TRACED)
    conn.execute(
        """select stream.append('Happened', 'dies', '{"n": 1}', headers => %s)""", [json.dumps(TRACED)]
    )
    outbox.append(conn, "Happened", key="untraced", data={"n": 1})
    conn.commit()
    group = ConsumerGroup("testers", topics=["things"], start="beginning")
    group.on("Happened")(handler)
    member = Member(group, small, things)
    until(lambda: {"retried", "untraced"} <= headers_of(things, "echoes").keys())
    until(lambda: "dies" in headers_of(things, "testers.dlq"))
    member.end()

    assert set(seen) == {
        ("retried", 1, PARENT), ("retried", 2, PARENT), ("dies", 1, PARENT), ("untraced", 1, None),
    }  # fmt: skip
    echoed = headers_of(things, "echoes")
    assert echoed["retried"]["traceparent"] == PARENT.encode()
    assert echoed["retried"]["tracestate"] == b"shop=1"
    assert "traceparent" not in echoed["untraced"]
    assert headers_of(things, "testers.retry")["retried"]["traceparent"] == PARENT.encode()
    assert headers_of(things, "testers.dlq")["dies"]["traceparent"] == PARENT.encode()
    assert conn.execute("select trace_id from stream.dead_letter").fetchall() == [(ID,)]

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    about = [line for line in lines if line["event"] in ("handling", "event.failed", "event.dead")]
    assert {line["event"] for line in about} == {"handling", "event.failed", "event.dead"}
    for line in about:
        assert line["group"] == "testers" and line["topic"] == "things" and line["type"] == "Happened"
        assert isinstance(line["partition"], int) and isinstance(line["offset"], int)
        assert line["event_id"] and line["attempt"] in (1, 2)
        assert line.get("trace_id") == (None if line["key"] == "untraced" else ID)


@pytest.mark.parametrize(
    ("own", "given", "emitted"),
    [
        (TRACED, None, TRACED),
        (TRACED, {"a": "b"}, {**TRACED, "a": "b"}),
        (TRACED, {"traceparent": OTHER}, {"traceparent": OTHER}),
        ({}, {"traceparent": OTHER}, {"traceparent": OTHER}),
        ({"traceparent": "nonsense"}, None, {}),
        ({"traceparent": PARENT, "tracestate": "a\0b"}, None, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": "x" * 600}, None, {"traceparent": PARENT}),
    ],
)
def test_what_is_emitted_goes_on_with_the_trace_of_its_event(
    retrying: Any, small: Project, conn: psycopg.Connection[Any], own: Any, given: Any, emitted: Any
) -> None:
    def echo(event: Event, ctx: Context) -> None:
        ctx.emit("Echoed", key="k", data={"n": 1}, headers=given)

    traced = record(small, "k")
    traced.headers = [*traced.headers, *((name, value.encode()) for name, value in own.items())]
    assert retrying(echo).kinds(traced) == ["done"]
    [(names, values)] = conn.execute("select header_names, header_values from stream.outbox").fetchall()
    assert dict(zip(names or (), (v.decode() for v in values or ()), strict=True)) == emitted


def test_a_list_of_events_emits_without_a_trace(
    small: Project, database_url: str, retrying: Any, conn: psycopg.Connection[Any]
) -> None:
    worker: RetryingWorker = retrying(lambda event, ctx: None, batch=10)

    @worker.group.on("Listed", batch=True)
    def together(events: list[Event], ctx: Context) -> None:
        ctx.emit("Echoed", key=f"of {len(events)}", data={"n": 1})

    listed = [record(small, f"k{n}", type="Listed") for n in range(2)]
    for one in listed:
        one.headers = [*one.headers, ("traceparent", PARENT.encode())]
    outcomes: list[Outcome] = worker.execution.run(Run(listed))
    assert [outcome.kind for outcome in outcomes] == ["done", "done"]
    assert conn.execute("select key, header_names from stream.outbox").fetchall() == [(b"of 2", None)]


@pytest.mark.parametrize(
    ("text", "id"),
    [
        (PARENT, ID),
        (PARENT.replace("00-", "cc-", 1) + "-what.the.future.brings", ID),
        (PARENT.upper(), None),
        (PARENT.replace("00-", "ff-", 1), None),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", None),
        (f"00-{ID}-{'0' * 16}-01", None),
        (f"00-{ID}-b7ad6b7169203331", None),
        (PARENT + "\n", None),
        ("", None),
    ],
)
def test_a_trace_id_is_one_that_the_standard_allows(text: str, id: str | None) -> None:
    assert trace_id([("traceparent", text.encode())]) == id
