"""Signals: every name under which a process says what it does: its metrics, and the lines of its log. Pure.

Two closed lists. What counts (meters.py) and what logs only uses these names: a metric that is not here cannot be
shown, and a test reads the code for lines of the log that are not. Labels are few and bounded: never a key, an id or a
message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from stream.events import Event, Record, trace_id
from stream.keys import shown_key

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, as Prometheus gets it. A name ends with its unit, a counter's with `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


# "Of its partitions": each process shows those it reads, so that their sum over the processes is the group's. What is
# read from the database is the same in every process: take `max by (group)`.
_METRICS = (
    Metric("stream_build_info", "gauge", "1; its label says which version runs.", ("version",)),
    Metric(
        "stream_dependency_up",
        "gauge",
        "1 while the broker, or the database, answered when it was last asked; 0 while it did not.",
        ("dependency",),
    ),
    # Of a group, counted in this process.
    Metric(
        "stream_messages_processed_total",
        "counter",
        "Tries of events, by the topic they were read from and what became of them: ok, skipped, duplicate; retry: it"
        " failed and is tried again; dlq: it was given up.",
        ("group", "topic", "outcome"),
    ),
    Metric(
        "stream_process_duration_seconds",
        "histogram",
        "How long a handler took with one event; of a list of events, each its share.",
        ("group", "type"),
    ),
    Metric(
        "stream_end_to_end_latency_seconds",
        "histogram",
        "From an event's publication to the commit of its effects.",
        ("group", "topic"),
    ),
    Metric(
        "stream_dlq_messages_total",
        "counter",
        "Events given up, by the class of their error.",
        ("group", "topic", "error_class"),
    ),
    Metric("stream_workers_active", "gauge", "Workers of this process that apply something now.", ("group",)),
    Metric("stream_workers_limit", "gauge", "Workers that this process has.", ("group",)),
    Metric("stream_handlers_stalled", "gauge", "Handlers past their deadline now.", ("group",)),
    Metric("stream_assigned_partitions", "gauge", "Partitions this process reads.", ("group",)),
    Metric("stream_rebalances_total", "counter", "Times that partitions came or went.", ("group",)),
    Metric(
        "stream_last_poll_timestamp_seconds",
        "gauge",
        "When the loop last went round, in Unix time.",
        ("group",),
    ),
    # Of its partitions, asked from the broker now and then.
    Metric(
        "stream_consumer_lag_records",
        "gauge",
        "Records from the first unfinished one to the end of the partition.",
        ("group", "topic", "partition"),
    ),
    Metric(
        "stream_oldest_unprocessed_timestamp_seconds",
        "gauge",
        "When the first unfinished record was published, in Unix time; NaN where there is none.",
        ("group", "topic", "partition"),
    ),
    # Of the whole group, read from the database now and then.
    Metric(
        "stream_group_held",
        "gauge",
        "1 while the group is halted, paused, or its breaker is open; else 0.",
        ("group", "hold"),
    ),
    Metric(
        "stream_parked_keys",
        "gauge",
        "Keys that wait: for their next try (waiting), or for a person (held).",
        ("group", "state"),
    ),
    Metric(
        "stream_retry_pending_records",
        "gauge",
        "Parked events: those that failed, and those behind them.",
        ("group",),
    ),
    Metric(
        "stream_retry_oldest_timestamp_seconds",
        "gauge",
        "When the parked event that has waited longest first failed, in Unix time; NaN where nothing is parked.",
        ("group",),
    ),
    Metric("stream_dlq_depth_records", "gauge", "Open dead letters.", ("group",)),
    Metric(
        "stream_dlq_oldest_timestamp_seconds",
        "gauge",
        "When the oldest open dead letter was written, in Unix time; NaN where there is none.",
        ("group",),
    ),
    # Of the relay.
    Metric(
        "stream_outbox_published_total",
        "counter",
        "Outbox rows this relay is done with: ok, acknowledged by the broker; rejected, set aside.",
        ("topic", "outcome"),
    ),
    Metric("stream_outbox_pending_rows", "gauge", "Rows that wait to be published."),
    Metric(
        "stream_outbox_oldest_timestamp_seconds",
        "gauge",
        "When the oldest of them was written, in Unix time; NaN where there is none.",
    ),
    Metric("stream_outbox_scheduled_rows", "gauge", "Rows that wait for their time."),
    Metric("stream_outbox_rejected_rows", "gauge", "Rows set aside, since they cannot be published."),
    Metric("stream_topic_sick", "gauge", "1 for each topic that cannot be written now.", ("topic",)),
)
METRICS = {metric.name: metric for metric in _METRICS}

MOST_KEY = 200  # characters of a key in the log

# Lines of the log, by whom they are about. Those about one event say which: see event_fields.
LINES = frozenset(
    {
        # an event
        "event.failed",
        "event.dead",
        "handler.stalled",
        "handler.does_not_return",
        "relay.rejected",
        "retry.unreadable",
        # a group
        "blame.left",
        "control.waiting",
        "database.waiting",
        "emits.withheld",
        "group.comes_back",
        "group.first_start",
        "group.goes_on",
        "group.held",
        "group.leaving",
        "group.makes_way",
        "lookout.waiting",
        "topic.missing",
        "group.settings_refused",
        "group.waiting",
        "partition.start",
        "partitions.assigned",
        "partitions.lost",
        "partitions.revoked",
        "partitions.suspect",
        "probe.failed",
        "retries.overdue",
        "runs.left_behind",
        "suspects.passed",
        # a relay
        "relay.connected",
        "relay.database_lost",
        "relay.drain_cut_short",
        "relay.producer_lost",
        "relay.shards",
        "relay.topic_sick",
        "relay.topic_well",
        # a process
        "kafka.error",
        "metrics.failed",
        "metrics.waiting",
    }
)


def event_fields(
    at: Record | Event, key: bytes | None, id: UUID, type: str | None, attempt: int
) -> dict[str, object]:
    """What each line of the log about one event of a group says of it; a trace id where it has one."""
    trace = trace_id(at.headers)
    return {
        "topic": at.topic,
        "partition": at.partition,
        "offset": at.offset,
        "key": (shown_key(key) or "")[:MOST_KEY],
        "event_id": str(id),
        "type": type,
        "attempt": attempt,
        **({} if trace is None else {"trace_id": trace}),
    }
