"""Spans of an order's way, collected by OpenTelemetry's own SDK."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stream import ConsumerGroup, Context, Event, Outbox, app, spans
from stream.config import Config
from stream.lanes import Run
from stream.project import Project
from stream.relay import Relay
from tests.support.groups import Member
from tests.support.retries import RetryingWorker
from tests.support.small import record
from tests.support.topics import create_topic
from tests.support.waiting import until


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What a process collects that has set up the SDK; others of this run have not."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def test_one_trace_holds_an_order_from_its_transaction_to_what_its_handler_emits(
    collected: InMemorySpanExporter, config: Config, small: Project, conn: psycopg.Connection[Any]
) -> None:
    app.migrate(config, small)
    for topic in ("testers.retry", "testers.dlq"):
        create_topic(config, topic, 2)

    def handler(event: Event, ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("not at first")
        ctx.emit("Echoed", key=event.key or "", data={"n": 1})

    with trace.get_tracer("shop").start_as_current_span("POST /orders") as request:
        Outbox(small).append(conn, "Happened", key="536365", data={"n": 1})
    conn.commit()
    group = ConsumerGroup("testers", topics=["things"], start="beginning")
    group.on("Happened")(handler)
    relay = Relay(config, small)
    thread = threading.Thread(target=relay.run, daemon=True)
    thread.start()
    member = Member(group, small, config)
    try:
        until(lambda: named(collected, "send echoes"))
    finally:
        member.end()
        relay.stop()
        thread.join(30)

    [create] = named(collected, "create things")
    [send] = named(collected, "send things")
    first, second = named(collected, "process things")
    [emit] = named(collected, "create echoes")
    [echo] = named(collected, "send echoes")
    ours = (create, send, first, second, emit, echo)
    assert {span.context.trace_id for span in ours} == {request.get_span_context().trace_id}
    parents = [span.parent.span_id for span in ours if span.parent is not None]
    assert parents == [
        request.get_span_context().span_id,
        create.context.span_id,
        create.context.span_id,
        create.context.span_id,
        second.context.span_id,
        emit.context.span_id,
    ]
    assert (first.status.status_code, second.status.status_code) == (
        trace.StatusCode.ERROR,
        trace.StatusCode.UNSET,
    )
    said = dict(first.attributes or {})
    assert said["error.type"] == "ValueError"
    assert said["messaging.consumer.group.name"] == "testers"
    assert said["messaging.kafka.message.key"] == "536365"
    assert [dict(span.attributes or {})["stream.attempt"] for span in (first, second)] == [1, 2]


def test_a_list_of_events_is_a_span_linked_to_the_trace_of_each(
    collected: InMemorySpanExporter, small: Project, retrying: Any
) -> None:
    worker: RetryingWorker = retrying(lambda event, ctx: None, batch=10)
    seen: list[int] = []

    @worker.group.on("Listed", batch=True)
    def together(events: list[Event], ctx: Context) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    listed = [record(small, f"k{n}", type="Listed") for n in range(3)]
    for n, one in enumerate(listed[:2], 1):
        one.headers = [*one.headers, ("traceparent", f"00-{n:032x}-{n:016x}-01".encode())]
    worker.execution.run(Run(listed))
    [span] = named(collected, "process things")
    assert [link.context.trace_id for link in span.links] == [1, 2]
    assert seen == [span.context.span_id]
    assert span.parent is None
    assert trace.get_current_span().get_span_context().is_valid is False


def test_nobody_who_has_not_set_it_up_pays_for_it() -> None:
    assert not spans.on()


def test_it_works_without_opentelemetry() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; from stream import spans; print(spans.on())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
