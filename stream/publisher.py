"""Publisher: the rows of one topic between the outbox and the broker.

Invariant: of one key at most one row is un-acknowledged. The next leaves on its acknowledgement; so order needs
nothing of the client or the broker, and a relay that lost its shards can only repeat, never overtake.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import structlog

from stream import spans
from stream.config import Config
from stream.errors import InvalidEvent
from stream.events import trace_id
from stream.kafka.admin import TopicWatch
from stream.kafka.producer import (
    KafkaError,
    KafkaException,
    Message,
    TopicProducer,
    is_client_only,
    is_topic_wide,
)
from stream.keys import shown_key
from stream.rows import Row
from stream.schemas import AvroCodec
from stream.signals import MOST_KEY

log = structlog.get_logger("stream.relay")

MOST_IN_MEMORY = 8000  # rows
MOST_BYTES_IN_MEMORY = 16 * 1024 * 1024
QUEUE_TO_LEAVE_OUT = 32  # rows of one key in memory: the next read leaves this key's later ones out
STALLED_S = 2.0  # without an acknowledgement, while rows are in flight
RESEND_S = 1.0  # after an answer that stops the whole topic
BEHIND = ("behind", "an earlier event of this key is rejected")


class Publisher:
    """One topic's producer and its rows in memory. Used by the relay's thread only.

    The relay reads `acknowledged` and `rejected` after `serve`, acts on the table, and calls `settled`.
    """

    def __init__(self, config: Config, topic: str, codec: AvroCodec) -> None:
        self.topic = topic
        self.sick: str | None = None
        self.well = False  # an acknowledgement came, and nothing since that says otherwise
        self.acknowledged: list[Row] = []
        self.rejected: list[tuple[Row, str, str]] = []
        self.known: set[int] = set()
        self.drops = 0  # how often rows went out of memory unpublished
        self._bytes = 0
        self._config, self._codec = config, codec
        self._producer: TopicProducer | None = None
        self._watch = TopicWatch(config, topic)
        self._ahead = True  # to be opened before there is a row for it: the first one need not wait a second
        self._in_flight: dict[bytes | int, Row] = {}
        self._waiting: dict[bytes | int, deque[Row]] = {}
        self._rejected_lanes: set[bytes | int] = (
            set()
        )  # until `settled`: the next read sees them in the table
        self._refused: deque[Row] = deque()  # by the broker, in a batch: to be tried alone
        self._alone: Row | None = None
        self._held_back = False  # lanes whose turn came while refused rows were sorted out
        self._unsent: list[Row] = []
        self._resend_at = 0.0
        self._last_progress = time.monotonic()

    # What the relay asks before it reads.

    @property
    def opened(self) -> bool:
        """Whether the next row leaves at once: the topic was found, and its producer made."""
        return self._producer is not None

    @property
    def idle(self) -> bool:
        return not self.known

    def wants_rows(self) -> bool:
        """Whether a read may add rows: a topic that cannot publish now holds one read's worth and no more."""
        if not self.known:
            return True
        has_room = len(self.known) < MOST_IN_MEMORY and self._bytes < MOST_BYTES_IN_MEMORY
        return has_room and self.sick is None and not self._sorting_out

    def busy_shards(self) -> set[int]:
        return {row.shard for row in self._rows()}

    def lowest(self) -> dict[int, int]:
        """Shard -> the lowest id in memory."""
        lowest: dict[int, int] = {}
        for row in self._rows():
            lowest[row.shard] = min(row.id, lowest.get(row.shard, row.id))
        return lowest

    def queued(self) -> dict[int, set[bytes]]:
        """Shard -> its keys with a long queue in memory."""
        queued: dict[int, set[bytes]] = {}
        for lane, rows in self._waiting.items():
            if len(rows) >= QUEUE_TO_LEAVE_OUT and isinstance(lane, bytes):
                queued.setdefault(rows[0].shard, set()).add(lane)
        return queued

    # Rows in, acknowledgements out.

    def offer(self, rows: Sequence[Row]) -> None:
        """Take rows in id order: send what may go, keep the rest behind its key."""
        if self.idle:
            self._last_progress = time.monotonic()
        for row in rows:
            self.known.add(row.id)
            self._bytes += row.size
            if row.behind_rejected or row.lane in self._rejected_lanes:
                self.rejected.append((row, *BEHIND))
            elif row.lane in self._in_flight or row.lane in self._waiting:
                self._waiting.setdefault(row.lane, deque()).append(row)
            else:
                self._send(row)

    def serve(self, seconds: float) -> bool:
        """Take delivery reports for at most `seconds`; true while rows are in flight that still move."""
        if self._producer is None and (self.known or self._ahead) and not self._open():
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
        done = [*self.acknowledged, *(row for row, _, _ in self.rejected)]
        self.known.difference_update(row.id for row in done)
        self._bytes -= sum(row.size for row in done)
        self.acknowledged, self.rejected = [], []
        self._rejected_lanes.clear()

    # Rows out of memory, unpublished: they are still in the table. A report that comes for one is ignored.

    def forget(self) -> None:
        """All rows, and the client with what it has not sent yet."""
        if self._producer is not None:
            self._producer.forget()
            self._producer = None
        self.well = False
        self._drop(lambda row: True)

    def drop(self, shards: Collection[int]) -> None:
        """The rows of shards that are given up."""
        self._drop(lambda row: row.shard in shards)

    def withdraw(self) -> None:
        """The rows that the client does not have: what is in flight is waited for."""
        unsent = {row.id for rows in (self._refused, self._unsent, *self._waiting.values()) for row in rows}
        self._drop(lambda row: row.id in unsent)

    def _drop(self, unwanted: Callable[[Row], bool]) -> None:
        self.drops += 1
        self._in_flight = {lane: row for lane, row in self._in_flight.items() if not unwanted(row)}
        waiting = {
            lane: deque(row for row in rows if not unwanted(row)) for lane, rows in self._waiting.items()
        }
        self._waiting = {lane: rows for lane, rows in waiting.items() if rows}
        self._refused = deque(row for row in self._refused if not unwanted(row))
        self._unsent = [row for row in self._unsent if not unwanted(row)]
        self.acknowledged = [row for row in self.acknowledged if not unwanted(row)]
        self.rejected = [entry for entry in self.rejected if not unwanted(entry[0])]
        if self._alone is not None and unwanted(self._alone):
            self._alone = None
        self._rejected_lanes = {row.lane for row, _, _ in self.rejected}
        self.known = {row.id for row in self._rows()}
        self._bytes = sum({row.id: row.size for row in self._rows()}.values())

    # Inside.

    @property
    def _sorting_out(self) -> bool:
        """Refused rows are being tried alone: nothing else of the topic may share their requests."""
        return bool(self._refused) or self._alone is not None

    def _rows(self) -> list[Row]:
        rows = [*self._in_flight.values(), *self.acknowledged, *(row for row, _, _ in self.rejected)]
        for waiting in self._waiting.values():
            rows.extend(waiting)
        return rows

    def _open(self) -> bool:
        """Make the producer once the topic is known to exist; until then the topic is sick, and asked about again."""
        state = self._watch.look()
        if state is None:
            return False
        self._ahead = False
        self.sick = state.problem
        if state.problem is not None:
            return False
        self._producer = TopicProducer(self._config, self.topic, state.max_message_bytes)
        self._last_progress = time.monotonic()
        return True

    def _send(self, row: Row) -> None:
        self._in_flight[row.lane] = row
        if self._producer is None:
            self._unsent.append(row)
            return
        try:
            self._producer.produce(
                self._producer.name,
                row.value(self._codec),
                row.key,
                headers=row.headers(),
                on_delivery=self._traced(row, partial(self._report, row)),
            )
        except InvalidEvent as error:
            self._reject(row, "invalid", str(error))
        except BufferError:
            self._unsent.append(row)
        except KafkaException as error:
            self._refuse(row, error.args[0], alone=True)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever is in a row, it must not stop the others
            self._reject(row, "invalid", f"{type(error).__name__}: {error}")

    @staticmethod
    def _traced(row: Row, report: Callable[[KafkaError | None, Message], None]) -> Any:
        return spans.sent(row.topic, row.key, row.own_headers, report) if spans.on() else report

    def _take_unsent(self) -> list[Row]:
        if self._producer is None or time.monotonic() < self._resend_at:
            return []
        unsent, self._unsent = self._unsent, []
        return unsent

    def _report(self, row: Row, error: KafkaError | None, _message: Message) -> None:
        """A delivery report, inside poll."""
        if self._in_flight.get(row.lane) is not row:
            return  # no longer in memory: forgotten, or its shard given up
        if error is None:
            self._last_progress = time.monotonic()
            self.sick, self.well = None, True
            self.acknowledged.append(row)
            self._release(row)
        else:
            self._refuse(row, error, alone=row is self._alone)
        if row is self._alone:
            self._alone = None

    def _release(self, row: Row) -> None:
        """The row is out of the way: the next of its key leaves at once, in the same pass."""
        del self._in_flight[row.lane]
        if row.lane not in self._waiting:
            return
        if self._refused:
            self._held_back = True
        else:
            self._send_next(row.lane)

    def _send_next(self, lane: bytes | int) -> None:
        waiting = self._waiting[lane]
        following = waiting.popleft()
        if not waiting:
            del self._waiting[lane]
        self._send(following)

    def _refuse(self, row: Row, error: KafkaError, *, alone: bool) -> None:
        if is_client_only(error):
            self._unsent.append(row)  # the client gave it back unjudged; `fatal` decides whether it can go on
        elif is_topic_wide(error):
            self.sick, self.well = error.str(), False
            self._resend_at = time.monotonic() + RESEND_S
            self._unsent.append(row)
        elif alone:
            self._reject(row, "refused", error.str())
        else:
            # The broker refuses a batch whole: innocent rows among them. Each is tried again alone.
            self._refused.append(row)

    def _reject(self, row: Row, reason: str, error: str) -> None:
        self._in_flight.pop(row.lane, None)
        if row is self._alone:
            self._alone = None
        self._rejected_lanes.add(row.lane)
        self.rejected.append((row, reason, error))
        self.rejected.extend((follower, *BEHIND) for follower in self._waiting.pop(row.lane, ()))
        log.warning(
            "relay.rejected",
            topic=row.topic,
            key=(shown_key(row.key) or "")[:MOST_KEY],
            event_id=row.event_id,
            type=row.type,
            trace_id=trace_id(row.own_headers),
            reason=reason,
            error=error,
            hint=f"stream outbox retry --topic {row.topic}",
        )

    def _try_refused_alone(self) -> None:
        """One refused row at a time, with nothing else of the topic in flight: then the report is about it."""
        if self._alone is not None:
            return
        if self._refused:
            if len(self._in_flight) == len(self._refused):
                self._alone = self._refused.popleft()
                self._send(self._alone)
        elif self._held_back:
            self._held_back = False
            for lane in self._waiting.keys() - self._in_flight.keys():
                self._send_next(lane)

    def _judge_progress(self) -> None:
        silent = time.monotonic() - self._last_progress
        if self._producer is None or not self._in_flight or silent < STALLED_S:
            return
        state = self._watch.look()
        said = None if state is None else state.problem or state.shortage
        if said is not None or self.sick is None:
            self.sick, self.well = said or f"no acknowledgement for {silent:.0f} s", False
