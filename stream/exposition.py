"""Exposition: what was counted and what was read, as Prometheus takes it. The only user of its client.

Made anew at each scrape from numbers that are there: it asks nobody, and waits for nobody.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from stream.meters import GroupMeter, Histogram, RelayMeter
from stream.readings import BROKER, DATABASE, Readings
from stream.signals import METRICS
from stream.vitals import GroupSigns, RelaySigns

HOLDS = ("halted", "paused", "breaker open")


class Exposition(Collector):
    """All metrics of one process. `groups` and `relay` give signs and meters when they are asked; from any thread."""

    def __init__(
        self,
        groups: Callable[[], Sequence[tuple[GroupSigns, GroupMeter]]],
        relay: Callable[[], tuple[RelaySigns, RelayMeter] | None],
        readings: Callable[[], Readings],
    ) -> None:
        self._groups, self._relay, self._readings = groups, relay, readings
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def encoded(self, accept: str) -> tuple[bytes, str]:
        """The metrics in the form that the caller accepts, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def describe(self) -> Iterable[Metric]:
        return ()  # not to be collected when it is registered: nothing is there yet

    def collect(self) -> Iterator[Metric]:
        families = _Families()
        readings = self._readings()
        families.gauge("stream_build_info", 1, version("order-event-stream"))
        if readings.at is not None:
            for name in (BROKER, DATABASE):
                families.gauge("stream_dependency_up", name not in readings.down, name)
        for signs, meter in self._groups():
            _group(families, signs, meter)
            _backlog(families, signs.group, readings)
        relay = self._relay()
        if relay is not None:
            _relay(families, *relay, readings)
        yield from families.found.values()


class _Families:
    """Families of samples by name, each made when its first sample comes."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def gauge(self, name: str, value: float, *labels: str) -> None:
        self._family(name, GaugeMetricFamily).add_metric(labels, float(value))

    def counter(self, name: str, value: float, *labels: str) -> None:
        self._family(name, CounterMetricFamily).add_metric(labels, float(value))

    def histogram(self, name: str, value: Histogram, *labels: str) -> None:
        total, buckets = 0, []
        for bound, count in zip((*map(str, value.bounds), "+Inf"), value.counts, strict=True):
            total += count
            buckets.append((bound, total))
        self._family(name, HistogramMetricFamily).add_metric(labels, buckets, sum_value=value.sum)

    def _family(self, name: str, kind: type) -> Any:
        if name not in self.found:
            metric = METRICS[name]
            self.found[name] = kind(name, metric.help, labels=metric.labels)
        return self.found[name]


def _group(families: _Families, signs: GroupSigns, meter: GroupMeter) -> None:
    group = signs.group
    for (topic, outcome), count in sorted(meter.tries().items()):
        families.counter("stream_messages_processed_total", count, group, topic, outcome)
    for (topic, error_class), count in sorted(meter.dead().items()):
        families.counter("stream_dlq_messages_total", count, group, topic, error_class)
    for type, histogram in meter.handled().items():
        families.histogram("stream_process_duration_seconds", histogram, group, type)
    for topic, histogram in meter.latencies.items():
        families.histogram("stream_end_to_end_latency_seconds", histogram, group, topic)
    families.gauge("stream_workers_active", signs.active, group)
    families.gauge("stream_workers_limit", signs.limit, group)
    families.gauge("stream_handlers_stalled", signs.stalled, group)
    families.gauge("stream_assigned_partitions", len(signs.offsets), group)
    families.counter("stream_rebalances_total", meter.rebalances, group)
    families.gauge("stream_last_poll_timestamp_seconds", time.time() - signs.round_s, group)
    for hold in HOLDS:
        families.gauge("stream_group_held", signs.hold == hold, group, hold)


def _backlog(families: _Families, group: str, readings: Readings) -> None:
    for (topic, partition), one in readings.lags.get(group, {}).items():
        place = (group, topic, str(partition))
        if one.lag is not None:
            families.gauge("stream_consumer_lag_records", one.lag, *place)
            since = _since(readings, one.lag_seconds if one.lag else None)
            families.gauge("stream_oldest_unprocessed_timestamp_seconds", since, *place)
    backlog = readings.backlogs.get(group)
    if backlog is not None:
        families.gauge("stream_parked_keys", backlog.waiting_keys, group, "waiting")
        families.gauge("stream_parked_keys", backlog.held_keys, group, "held")
        families.gauge("stream_retry_pending_records", backlog.parked, group)
        families.gauge("stream_retry_oldest_timestamp_seconds", _or_nan(backlog.parked_since), group)
        families.gauge("stream_dlq_depth_records", backlog.letters, group)
        families.gauge("stream_dlq_oldest_timestamp_seconds", _or_nan(backlog.letters_since), group)


def _relay(families: _Families, signs: RelaySigns, meter: RelayMeter, readings: Readings) -> None:
    for topic in meter.topics():
        families.counter("stream_outbox_published_total", meter.published[topic], topic, "ok")
        families.counter("stream_outbox_published_total", meter.rejected[topic], topic, "rejected")
        families.gauge("stream_topic_sick", topic in signs.sick, topic)
    outbox = readings.outbox
    if outbox is not None:
        families.gauge("stream_outbox_pending_rows", outbox.pending)
        since = _since(readings, outbox.oldest_seconds)
        families.gauge("stream_outbox_oldest_timestamp_seconds", since)
        families.gauge("stream_outbox_scheduled_rows", outbox.scheduled)
        families.gauge("stream_outbox_rejected_rows", outbox.rejected)


def _since(readings: Readings, age_s: float | None) -> float:
    """The moment that lay so far back when it was read."""
    return math.nan if age_s is None or readings.at is None else readings.at - age_s


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
