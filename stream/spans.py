"""Spans: an order's way as OpenTelemetry shows it (extra `otel`). Only its API is used: what collects them is set up by
whoever wants them, as with `opentelemetry-instrument stream consume ...`. Where nobody has, `on()` is all it costs.

    create T    an event is appended; its context is in the event's headers from then on
    send T      the relay hands its record to the broker, until that is acknowledged
    process T   a handler has it; what the handler emits comes from here
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stream.events import TRACEPARENT, TRACESTATE, Event, header

try:
    from opentelemetry import context as _context
    from opentelemetry import trace as _trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    _INSTALLED = False
else:
    _INSTALLED = True
    _PROPAGATOR = TraceContextTextMapPropagator()

Headers = Sequence[tuple[str, bytes | None]]


def on() -> bool:
    """Whether somebody collects spans in this process."""
    return _INSTALLED and not isinstance(_trace.get_tracer_provider(), _trace.ProxyTracerProvider)


def created(topic: str, type: str, key: str, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The headers of an event that is appended, with a trace: their own, or the one this is part of."""
    if headers and TRACEPARENT in headers:
        return headers
    attributes = _messaging("create", topic, key) | {"stream.event.type": type}
    with _tracer().start_as_current_span(
        f"create {topic}", kind=_trace.SpanKind.PRODUCER, attributes=attributes
    ):
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
    return {**carrier, **(headers or {})}


def sent(
    topic: str, key: bytes | None, headers: Headers, report: Callable[[Any, Any], None]
) -> Callable[[Any, Any], None]:
    """A delivery report that ends the span of its record, and then does what it would."""
    span = _tracer().start_span(
        f"send {topic}",
        context=_parent(headers),
        kind=_trace.SpanKind.PRODUCER,
        attributes=_messaging("send", topic, (key or b"").decode(errors="replace")),
    )

    def ended(error: Any, message: Any) -> None:
        if error is not None:
            _failed(span, str(error.name()))
        span.end()
        report(error, message)

    return ended


class Processing:
    """The span of one call of a handler, from its making to `end`, in the thread that makes it."""

    def __init__(self, group: str, events: Sequence[Event], attempt: int) -> None:
        first = events[0]
        attributes: dict[str, Any] = _messaging("process", first.topic, first.key or "")
        attributes |= {
            "messaging.consumer.group.name": group,
            "stream.event.type": first.type,
            "stream.attempt": attempt,
        }
        parents = [_parent(event.headers) for event in events]
        if len(events) == 1:
            attributes |= {
                "messaging.message.id": str(first.id),
                "messaging.destination.partition.id": str(first.partition),
                "messaging.kafka.offset": first.offset,
            }
        else:  # a list has a trace each: they are linked
            attributes["messaging.batch.message_count"] = len(events)
        contexts = [_trace.get_current_span(parent).get_span_context() for parent in parents]
        self._span = _tracer().start_span(
            f"process {first.topic}",
            context=parents[0] if len(events) == 1 else None,
            kind=_trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=[_trace.Link(one) for one in contexts if one.is_valid],
        )
        self._token = _context.attach(_trace.set_span_in_context(self._span))

    def end(self, error: BaseException | None) -> None:
        """It has returned, or raised."""
        if error is not None:
            _failed(self._span, type(error).__qualname__)
        _context.detach(self._token)
        self._span.end()


def _tracer() -> Any:
    return _trace.get_tracer("stream")


def _parent(headers: Headers) -> Any:
    """The context that headers carry; without one, none: not what happens to run in this thread."""
    carrier = {name: header(headers, name) or "" for name in (TRACEPARENT, TRACESTATE)}
    return _PROPAGATOR.extract(carrier, _context.Context())


def _failed(span: Any, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(_trace.StatusCode.ERROR)


def _messaging(operation: str, topic: str, key: str) -> dict[str, str]:
    """What the conventions ask for, of every span."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
        "messaging.kafka.message.key": key.encode(errors="replace").decode()[:200],
    }
