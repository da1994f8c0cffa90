"""Inspection: records of a topic as people look at them, whatever stands in them. It joins no group."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from threading import Event
from typing import Any, Literal
from uuid import UUID

from stream.config import Config
from stream.errors import StreamError, Unreachable, UsageError
from stream.events import Record, event_id_of, event_time, header
from stream.groups import nearest
from stream.kafka.admin import partition_counts
from stream.kafka.scans import UNREADABLE, Scan, Scanner
from stream.keys import partition_of, shown_key
from stream.schemas import AvroCodec, DecodeError, to_json
from stream.views import as_json

LOOK_EVERY_S = 5.0  # at the topic that is followed: is it there, has it more partitions
PATIENCE_S = 20.0  # a partition that has more, and gives nothing for so long, is not read


@dataclass(frozen=True, slots=True)
class Position:
    """Where to start, in each partition: at its first record or its end; at `offset`; so many offsets before the end;
    or at the first record that is not older than `time`."""

    kind: Literal["beginning", "end", "offset", "back", "time"]
    offset: int = 0
    time: datetime | None = None


BEGINNING = Position("beginning")


@dataclass(frozen=True, slots=True)
class Selection:
    """Records of a topic: from `start` on, up to the end there is now or to the first record not older than `until`.

    `partitions`: None is all; with a `key`, its own. `most`: no more of each partition, in offsets.
    """

    topic: str
    partitions: Sequence[int] | None = None
    key: bytes | None = None
    start: Position = BEGINNING
    until: datetime | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Inspected:
    """A record and what can be said of it. `schema`: the number its value names. `data`: None where there is no value,
    or where `problem` says why it cannot be read."""

    record: Record
    event_id: UUID
    type: str | None
    schema: int | None
    schema_name: str | None
    data: Any
    problem: str | None

    @property
    def timestamp(self) -> datetime | None:
        """The broker's, or the producer's; None where the record has none."""
        return None if self.record.timestamp < 0 else event_time((), self.record.timestamp)


class Inspection:
    """The records that are chosen. `notes` say where they do not begin where they were asked for.

    Owned by one thread. Once `stopping` is set, each call ends soon, and `left` is what was not read. Raises as Scanner
    does, and UsageError where there is no such topic or partition.
    """

    def __init__(self, config: Config, selection: Selection, stopping: Event) -> None:
        self.selection = selection
        self.notes: list[str] = []
        self._config = config
        self._stopping = stopping
        self._scanner = Scanner(config, "stream-inspect")
        try:
            partitions = _partitions(selection, partition_counts(config))
            self.scans = [self._scan(partition) for partition in partitions]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Inspection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._scanner.close()

    @property
    def left(self) -> list[Scan]:
        """What was not read to its end."""
        return [scan for scan in self.scans if not scan.complete]

    def first(self, most: int | None = None) -> Iterator[Record]:
        """The records, one partition after the other, `most` at most."""
        return islice((record for scan in self.scans for record in self._read([scan])), most)

    def last(self, most: int) -> list[Record]:
        """The last `most` of the records, of all partitions together, by time; a partition's keep their order.

        Reads backwards, further and further, until it has them: so the last of a large topic are there at once.
        """
        found: dict[int, list[Record]] = {scan.partition: [] for scan in self.scans}
        above = {scan.partition: scan.end or 0 for scan in self.scans}  # what stands from here on is read
        window = max(most, 100)
        while not self._stopping.is_set():
            parts = [
                replace(scan, reached=max(scan.first, (scan.end or 0) - window), end=above[scan.partition])
                for scan in self.scans
                if above[scan.partition] > scan.first and len(found[scan.partition]) < most
            ]
            if not parts:
                break
            below = {part.partition: part.reached for part in parts}
            new: dict[int, list[Record]] = {partition: [] for partition in below}
            for record in self._read(parts):
                new[record.partition].append(record)
            found |= {partition: [*records, *found[partition]][-most:] for partition, records in new.items()}
            above |= below
            window *= 4
        else:
            return []
        for scan in self.scans:
            scan.reached = scan.end or 0
        merged = list(heapq.merge(*found.values(), key=lambda record: record.timestamp))
        return merged[-most:]

    def follow(self) -> Iterator[Record]:
        """What comes behind the ends, of all partitions as it comes, until `stopping` is set.

        Partitions that are added are read from their beginning, unless some were chosen. Raises StreamError once the
        topic is deleted.
        """
        endless = [replace(scan, reached=scan.end or 0, end=None) for scan in self.scans]
        until = 0.0

        def go_on() -> bool:
            return not self._stopping.is_set() and time.monotonic() < until

        while not self._stopping.is_set():
            until = time.monotonic() + LOOK_EVERY_S
            yield from self._scanner.read(endless, go_on, key=self.selection.key)
            endless += [Scan(self.selection.topic, n, 0, 0, None) for n in self._added(len(endless))]

    def _added(self, known: int) -> range:
        """The partitions that the topic has more than it had."""
        topic = self.selection.topic
        try:
            count = partition_counts(self._config).get(topic)
        except Unreachable:  # for a while: the client itself waits for it
            return range(0)
        if count is None:
            raise StreamError(
                f"topic {topic} was deleted", hint="stream migrate   (makes a project's topics)"
            )
        chosen = self.selection.partitions is not None or self.selection.key is not None
        return range(0) if chosen else range(known, count)

    def _read(self, scans: Sequence[Scan]) -> Iterator[Record]:
        """The scans' records; raises Unreachable where they give nothing for long."""
        moved, since = -1, time.monotonic()

        def go_on() -> bool:
            nonlocal moved, since
            reached = sum(scan.reached for scan in scans)
            if reached != moved:
                moved, since = reached, time.monotonic()
            if time.monotonic() - since > PATIENCE_S:
                where = ", ".join(f"{scan.position} of {scan.end}" for scan in scans if not scan.complete)
                raise Unreachable(
                    f"nothing came for {PATIENCE_S:.0f} s; not read: {where}",
                    hint="stream stack status   (or check KAFKA_BOOTSTRAP_SERVERS)",
                )
            return not self._stopping.is_set()

        return self._scanner.read(scans, go_on, key=self.selection.key)

    def _scan(self, partition: int) -> Scan:
        selection = self.selection
        whole = self._scanner.whole(selection.topic, partition)
        low, end = whole.first, whole.end or 0

        def offset_at(moment: datetime) -> int:
            found = self._scanner.offset_at(selection.topic, partition, moment)
            return end if found is None else min(found, end)

        first, note = begin(selection.start, low, end, offset_at)
        if note is not None:
            self.notes.append(f"{selection.topic}[{partition}]: {note}")
        if selection.until is not None:
            end = max(first, offset_at(selection.until))
        if selection.most is not None:
            end = min(end, first + selection.most)
        return Scan(selection.topic, partition, first, first, end)


def begin(
    start: Position, low: int, end: int, offset_at: Callable[[datetime], int]
) -> tuple[int, str | None]:
    """The offset to begin with in a log from `low` to `end`; what to say where it is not the one asked for. Pure."""
    if start.kind == "time" and start.time is not None:
        return min(max(low, offset_at(start.time)), end), None
    wanted = {"beginning": low, "end": end, "back": end - start.offset}.get(start.kind, start.offset)
    if start.kind == "offset" and wanted < low:
        return low, f"offset {wanted} is not in the log any more, its first is {low}"
    if wanted > end:
        return end, f"offset {wanted} is not in the log yet, its end is {end}"
    return max(low, wanted), None


def inspected(record: Record, codec: AvroCodec) -> Inspected:
    """The record decoded, or the reason why it cannot be. Never raises."""
    number, name = (None, None) if record.value is None else codec.schema_of(record.value)
    data, problem = None, None
    if record.value is not None:
        try:
            data = to_json(codec.decode(record.value)[1])
        except DecodeError as error:
            problem = f"{error.reason}: {error.message}"
        except StreamError as error:
            problem = error.message
    if record.headers is UNREADABLE and problem is None:
        problem = "a header's name is no UTF-8"
    return Inspected(
        record, event_id_of(record), header(record.headers, "ce_type"), number, name, data, problem
    )


def record_form(one: Inspected) -> dict[str, Any]:
    """The public JSON of a record: text as it is, bytes that are none as `\\x` and hex."""
    record = one.record
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": as_json(one.timestamp),
        "key": shown_key(record.key),
        "event_id": str(one.event_id),
        "type": one.type,
        "time": as_json(event_time(record.headers, record.timestamp)),
        "schema": one.schema,
        "schema_name": one.schema_name,
        "data": one.data,
        "problem": one.problem,
        "headers": [[name, shown_key(value)] for name, value in record.headers],
        "value": None if record.value is None else "\\x" + record.value.hex(),
    }


def _partitions(selection: Selection, counts: Mapping[str, int]) -> Sequence[int]:
    """The partitions to read; raises UsageError where there is no such topic or partition."""
    count = counts.get(selection.topic)
    if count is None:
        near = nearest(selection.topic, counts)
        meant = "" if near is None else f" (did you mean {near}?)"
        known = ", ".join(sorted(counts)) or "none"
        raise UsageError(
            f"there is no topic {selection.topic!r:.260} on this cluster{meant}; there are: {known}",
            hint="stream migrate   (makes a project's topics)"
            if near is None
            else f"stream topics inspect {near}",
        )
    if selection.partitions is None:
        return range(count) if selection.key is None else [partition_of(selection.key, count)]
    for partition in selection.partitions:
        if partition >= count:
            raise UsageError(
                f"topic {selection.topic} has partitions 0 to {count - 1}, not {partition}",
                hint=f"stream topics inspect {selection.topic} --partition {count - 1}",
            )
    return sorted(set(selection.partitions))
