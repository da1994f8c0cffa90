"""Publisher: the rows of one topic between the outbox and the broker.

Invariant: of one key at most one row is un-acknowledged. The next leaves on its acknowledgement; so order needs
nothing of the client or the broker, and a relay that lost its shards can only repeat, never overtake.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from stream.config import Config
from stream.errors import InvalidEvent
from stream.events import Headers, cloud_headers
from stream.kafka.admin import TopicLookup
from stream.kafka.producer import (
    KafkaError,
    KafkaException,
    Message,
    TopicProducer,
    is_client_only,
    is_topic_wide,
)
from stream.schemas import AvroCodec

log = structlog.get_logger("stream.relay")

MOST_IN_MEMORY = 8000  # rows
QUEUE_TO_LEAVE_OUT = 32  # rows of one key in memory: the next read leaves this key's later ones out
STALLED_S = 2.0  # without an acknowledgement, while rows are in flight
LOOKUP_EVERY_S = 1.0


@dataclass(slots=True)
class Row:
    """An outbox row, as read_outbox.sql gives it."""

    id: int
    shard: int
    topic: str
    key: bytes | None
    event_id: str
    type: str
    time: datetime
    payload: bytes | None
    data: Any
    header_names: Sequence[str] | None
    header_values: Sequence[bytes | None] | None
    behind_rejected: bool

    @property
    def lane(self) -> bytes | int:
        """What is kept in order: the key; a row without one has no order, and its id as a lane of its own."""
        return self.id if self.key is None else self.key

    def headers(self) -> Headers:
        own: Headers = list(zip(self.header_names or (), self.header_values or (), strict=True))
        if self.header_names and "ce_id" in self.header_names:
            return own
        return cloud_headers(self.event_id, self.type, self.time) + own


class Publisher:
    """One topic's producer and its rows in memory. Used by the relay's thread only.

    The relay reads `acknowledged` and `rejected` after `serve`, acts on the table, and calls `settled`.
    """

    def __init__(self, config: Config, topic: str, codec: AvroCodec) -> None:
        self.topic = topic
        self.sick: str | None = None
        self.acknowledged: list[Row] = []
        self.rejected: list[tuple[Row, str, str]] = []
        self.known: set[int] = set()
        self._config, self._codec = config, codec
        self._producer: TopicProducer | None = None
        self._lookup: TopicLookup | None = None
        self._next_lookup = 0.0
        self._session = 0
        self._in_flight: dict[bytes | int, Row] = {}
        self._waiting: dict[bytes | int, deque[Row]] = {}
        self._refused: deque[Row] = deque()  # by the broker, in a batch: to be tried alone
        self._alone: Row | None = None
        self._unsent: list[Row] = []
        self._resend_at = 0.0
        self._last_progress = time.monotonic()

    # What the relay asks before it reads.

    @property
    def idle(self) -> bool:
        return not self.known

    def wants_rows(self) -> bool:
        """Whether a read may add rows: a topic that cannot publish now holds one read's worth and no more."""
        return not self.known or (
            self.sick is None and not self._sorting_out and len(self.known) < MOST_IN_MEMORY
        )

    def busy(self, shard: int) -> bool:
        return any(row.shard == shard for row in self._rows())

    def lowest(self) -> dict[int, int]:
        """Shard -> the lowest id in memory."""
        lowest: dict[int, int] = {}
        for row in self._rows():
            lowest[row.shard] = min(row.id, lowest.get(row.shard, row.id))
        return lowest

    def queued(self) -> list[tuple[bytes, int]]:
        """Keys with a long queue in memory, and their shards."""
        return [
            (lane, rows[0].shard)
            for lane, rows in self._waiting.items()
            if len(rows) >= QUEUE_TO_LEAVE_OUT and isinstance(lane, bytes)
        ]

    # Rows in, acknowledgements out.

    def offer(self, rows: Sequence[Row]) -> None:
        """Take rows in id order: send what may go, keep the rest behind its key."""
        if self.idle:
            self._last_progress = time.monotonic()
        for row in rows:
            self.known.add(row.id)
            if row.behind_rejected:
                self.rejected.append((row, "behind", "an earlier event of this key is rejected"))
            elif row.lane in self._in_flight or row.lane in self._waiting:
                self._waiting.setdefault(row.lane, deque()).append(row)
            else:
                self._send(row)

    def serve(self, seconds: float) -> bool:
        """Take delivery reports for at most `seconds`; true while rows are in flight that still move."""
        if self._producer is None and self.known and not self._open():
            return False
        if self._producer is not None and self._producer.fatal:
            log.error("relay.producer_lost", topic=self.topic, reason=self._producer.fatal.str())
            self.forget()
            return False
        for row in self._take_unsent():
            self._send(row)
        if self._producer is not None:
            self._producer.poll(seconds)
        self._try_refused_alone()
        self._judge_progress()
        return bool(self._in_flight or self._unsent) and self.sick is None

    def settled(self) -> None:
        """The relay has deleted the acknowledged rows and set the rejected ones aside."""
        self.known.difference_update(row.id for row in self.acknowledged)
        self.known.difference_update(row.id for row, _, _ in self.rejected)
        self.acknowledged, self.rejected = [], []

    def forget(self) -> None:
        """Drop every row from memory: they are read again. Reports of what was sent before are ignored."""
        self._session += 1
        if self._producer is not None:
            self._producer.forget()
            self._producer = None
        self._in_flight.clear()
        self._waiting.clear()
        self._refused.clear()
        self._unsent.clear()
        self.known.clear()
        self._alone = None
        self.acknowledged, self.rejected = [], []

    # Inside.

    @property
    def _sorting_out(self) -> bool:
        """Refused rows are being tried alone: nothing else of the topic may share their requests."""
        return bool(self._refused) or self._alone is not None

    def _rows(self) -> list[Row]:
        rows = [
            *self._in_flight.values(),
            *self._refused,
            *self.acknowledged,
            *(row for row, _, _ in self.rejected),
        ]
        for waiting in self._waiting.values():
            rows.extend(waiting)
        return rows

    def _open(self) -> bool:
        """Make the producer once the topic is known to exist; until then the topic is sick, and asked about again."""
        now = time.monotonic()
        if self._lookup is None:
            if now < self._next_lookup:
                return False
            self._lookup = TopicLookup(self._config, self.topic)
        state = self._lookup.result()
        if state is None:
            return False
        self._lookup, self._next_lookup = None, now + LOOKUP_EVERY_S
        self.sick = state.problem
        if state.problem is not None:
            return False
        self._producer = TopicProducer(self._config, self.topic, state.max_message_bytes)
        self._last_progress = now
        return True

    def _send(self, row: Row) -> None:
        self._in_flight[row.lane] = row
        if self._producer is None:
            self._unsent.append(row)
            return
        try:
            value = row.payload if row.data is None else self._codec.encode(row.type, row.data)
            self._producer.produce(
                self._producer.name,
                value,
                row.key,
                headers=row.headers(),
                on_delivery=partial(self._report, self._session, row),
            )
        except InvalidEvent as error:
            self._reject(row, "invalid", str(error))
        except BufferError:
            self._unsent.append(row)
        except KafkaException as error:
            self._refuse(row, error.args[0], alone=True)

    def _take_unsent(self) -> list[Row]:
        if self._producer is None or time.monotonic() < self._resend_at:
            return []
        unsent, self._unsent = self._unsent, []
        return unsent

    def _report(self, session: int, row: Row, error: KafkaError | None, _message: Message) -> None:
        """A delivery report, inside poll."""
        if session != self._session:
            return
        self._last_progress = time.monotonic()
        if error is None:
            if self.sick is not None:
                self.sick = None
            self.acknowledged.append(row)
            self._release(row)
        else:
            self._refuse(row, error, alone=row is self._alone)
        if row is self._alone:
            self._alone = None

    def _release(self, row: Row) -> None:
        """The row is out of the way: the next of its key leaves at once, in the same pass."""
        del self._in_flight[row.lane]
        waiting = self._waiting.get(row.lane)
        if waiting is None or self._refused:
            return  # held back until the refused rows are sorted out
        following = waiting.popleft()
        if not waiting:
            del self._waiting[row.lane]
        self._send(following)

    def _refuse(self, row: Row, error: KafkaError, *, alone: bool) -> None:
        if is_client_only(error):
            self._unsent.append(row)  # the client gave it back unjudged; `fatal` decides whether it can go on
        elif is_topic_wide(error):
            self.sick = error.str()
            self._resend_at = time.monotonic() + LOOKUP_EVERY_S
            self._unsent.append(row)
        elif alone:
            self._reject(row, "refused", error.str())
        else:
            # The broker refuses a batch whole: innocent rows among them. Each is tried again alone.
            self._refused.append(row)

    def _reject(self, row: Row, reason: str, error: str) -> None:
        self._in_flight.pop(row.lane, None)
        self.rejected.append((row, reason, error))
        for follower in self._waiting.pop(row.lane, ()):
            self.rejected.append((follower, "behind", "an earlier event of this key is rejected"))
        log.warning(
            "relay.rejected",
            topic=row.topic,
            key=row.key,
            event_id=row.event_id,
            type=row.type,
            reason=reason,
            error=error,
            hint=f"stream outbox retry --topic {row.topic}",
        )

    def _try_refused_alone(self) -> None:
        """One refused row at a time, with nothing else of the topic in flight: then the report is about it."""
        if self._alone is not None or len(self._in_flight) > len(self._refused):
            return
        if self._refused:
            self._alone = self._refused.popleft()
            self._send(self._alone)
        elif self._waiting and not self._in_flight:
            self._resume_waiting()

    def _resume_waiting(self) -> None:
        """After the refused rows: the keys that were held back go on."""
        for lane in list(self._waiting):
            rows = self._waiting[lane]
            head = rows.popleft()
            if not rows:
                del self._waiting[lane]
            self._send(head)

    def _judge_progress(self) -> None:
        if self._producer is None or not self._in_flight or self.sick is not None:
            return
        silent = time.monotonic() - self._last_progress
        if silent > STALLED_S:
            self.sick = f"no acknowledgement for {silent:.0f} s: the broker is away, or the topic has too few in-sync replicas"
