"""Handling: the handlers of one transaction. Decodes what was claimed and calls handlers in order."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
from psycopg.rows import tuple_row

from stream import spans
from stream.connection import HandlerConnection
from stream.context import Context
from stream.database import is_infrastructure
from stream.errors import StopGroup, StreamError
from stream.events import Event, parsed_time
from stream.groups import ConsumerGroup, Handler
from stream.lanes import LaneKey
from stream.outbox import Outbox, Prepared
from stream.outcomes import DONE, NO_HANDLER, UNRUN, Outcome
from stream.pace import NotNow, Paces
from stream.schemas import AvroCodec, DecodeError
from stream.watchdog import Desk
from stream.work import Work

DECODED_BYTES, DECODED_TOGETHER = (
    256 * 1024,
    64,
)  # values, and their number; a failure wastes what stands behind it
UNDONE_TOGETHER = 32  # events


class Unplaced(Exception):
    """Something of several events failed, and it cannot be said which; the reason is its cause."""

    @property
    def reason(self) -> BaseException:
        return self.__cause__ or self


def blame(alone: list[Work], reason: BaseException) -> None:
    """The event that was alone in the transaction is the one. Raises StreamError where there was none."""
    if not alone:
        raise StreamError(f"what failed cannot be written down: {reason}")
    alone[0].fail(reason, "commit")


class Infrastructure(Exception):
    """The database's condition, no event's fault: the same again later, no attempt counted; its cause says what.

    `handling`: it came out of handlers, on a connection that could be opened.
    """

    def __init__(self, *, handling: bool = False) -> None:
        super().__init__()
        self.handling = handling


class Swallowed(StreamError):
    """A statement of a handler failed or was left unfinished, and the handler returned as if all were well."""

    def __init__(self) -> None:
        super().__init__(
            "a statement failed, or a COPY was left open, and the handler went on: its transaction cannot be committed;"
            " what may fail goes into `with ctx.db.transaction():`"
        )


class Handling:
    """Runs handlers inside a transaction that somebody else began and ends.

    After `run`, every work has an outcome. `doomed`: a failed handler had sent SQL, so its transaction must be
    rolled back and made again without the failed ones. Otherwise a failed event left nothing behind but its claim.
    `careful`: failures are likely; some events at a time stand behind a savepoint, and one that fails late undoes these
    and no others. `redone`: it has.
    `plain`: every one of them is done, none failed, none was skipped, none had no handler.
    `emitted` and `skipped` are for the owner to write; `withheld` events were emitted when theirs were applied before;
    `committing` is the owner's: the commit is on its way.
    """

    def __init__(
        self,
        conn: HandlerConnection,
        codec: AvroCodec,
        outbox: Outbox,
        group: ConsumerGroup,
        *,
        alone: bool,
        blame: bool,
        careful: bool = False,
        desk: Desk | None = None,
        pace: Paces | None = None,
    ) -> None:
        self.handled = False  # whether any handler may have run
        self.doomed = False
        self.plain = True
        self.redone = False
        self.committing = False
        self.emitted: list[Prepared] = []
        self.withheld = 0
        self.skipped: dict[Work, str] = {}
        self._conn = conn
        self._codec = codec
        self._outbox = outbox
        self._group = group
        self._desk = desk or Desk()
        self._pace = None if pace is None or pace.rate is None else pace
        self._traces = spans.on()  # to ask costs as much as all that is counted of an event
        # A list of events is one call: what it did cannot be undone in parts.
        self._skips = group.on_reapply == "skip"
        self._careful = careful and not any(handler.batch for handler in group.handlers.values())
        self._alone = alone  # one event in the transaction: whatever fails is its doing
        self._blame = blame  # the database's condition has come out of these handlers too often to be its own
        self._blocked: set[LaneKey] = set()  # lanes with a failed event: nothing behind it runs
        # Lists being collected for handlers with `batch`, and in whose list a lane has events.
        self._lists: dict[Handler, list[tuple[Work, Event]]] = {}
        self._listed: dict[LaneKey, Handler] = {}
        self._listed_epoch = 0  # of the events in all of them

    def run(self, works: list[Work]) -> None:
        """Decode and handle, in order. Raises Unplaced, Infrastructure, StopGroup or MemoryError."""
        self.handled = bool(works)
        self._conn.guarded = True
        try:
            if self._careful:
                for some in pieces(works, UNDONE_TOGETHER):
                    self._run_undoably(some)
            else:
                for some in pieces(works):
                    self._run_together(some)
            for handler in list(self._lists):
                self._flush(handler)
        finally:
            self._conn.guarded = False
            self._conn.row_factory = tuple_row  # a handler may have set its own

    def _run_together(self, works: list[Work]) -> None:
        # Many are decoded together: a tenth faster than in turn with the handlers, whose code is another.
        blocked = self._blocked
        if blocked:
            works = [work for work in works if not self._stands_behind(work)]
        if self._skips:
            works = [work for work in works if not self._skip_again(work)]
        for work, event in [(work, self._decode(work)) for work in works]:
            self._handle(work, event)

    def _skip_again(self, work: Work) -> bool:
        if work.rerun:
            self.skipped[work] = f"not run again in epoch {work.rerun}"
            work.outcome = Outcome("skipped", self.skipped[work])
            self.plain = False
        return work.rerun > 0

    def _stands_behind(self, work: Work) -> bool:
        if work.lane in self._blocked:
            work.outcome = UNRUN  # behind a failed one: `plain` is no more
            return True
        return False

    def _run_undoably(self, works: list[Work]) -> None:
        """What failed among these once its SQL was sent undoes all of them; they run again without it."""
        conn = self._conn
        conn.execute("savepoint undoable")
        blocked: set[LaneKey] = set()  # by what failed here: it stood behind those of its lane that run again
        while works:
            emitted, before = len(self.emitted), set(self._blocked)
            self._run_together(works)
            blocked |= self._blocked
            if not self.doomed:
                break
            conn.execute("rollback to savepoint undoable")
            self.doomed, self.redone = False, True
            self._blocked = before
            del self.emitted[emitted:]
            works = [work for work in works if work.finished]
            for work in works:
                work.outcome = None
                self.skipped.pop(work, None)
        self._blocked |= blocked
        conn.execute("release savepoint undoable")

    def _handle(self, work: Work, event: Event | BaseException) -> None:
        if self._stands_behind(work):
            return
        handler = self._group.handlers.get(event.type) if isinstance(event, Event) else None
        listed = self._listed.get(work.lane)
        if listed is not None and (listed is not handler or work.attempt > 1):
            # A list that holds an earlier event of this key goes first, and may fail.
            self._flush(listed)
            if work.lane in self._blocked:
                work.outcome = UNRUN
                return
        if not isinstance(event, Event):
            work.fail(event, "decode")
            self._blocked.add(work.lane)
            self.plain = False
        elif handler is None:  # only the bytes said the type
            work.outcome = NO_HANDLER
            self.plain = False
        elif not handler.batch:
            self._call(handler, event, [work], [event])
        elif work.attempt == 1:
            if work.rerun != self._listed_epoch:
                for other in list(self._lists):
                    self._flush(other)
                self._listed_epoch = work.rerun
                if self._stands_behind(work):
                    return
            self._lists.setdefault(handler, []).append((work, event))
            self._listed[work.lane] = handler
        else:  # another try: a list of one, or a neighbour's failure would count for it
            self._call(handler, [event], [work], [event])

    def _flush(self, handler: Handler) -> None:
        listed = self._lists.pop(handler)
        works = [work for work, _ in listed]
        events = [event for _, event in listed]
        for work in works:
            self._listed.pop(work.lane, None)
        self._call(handler, events, works, events)

    def _decode(self, work: Work) -> Event | BaseException:
        record = work.record
        try:
            name, data = self._codec.decode(record.value or b"")
            if work.type is not None and work.type != name:
                raise DecodeError("malformed", f"ce_type says {work.type!r:.100}, the bytes are a {name}")
            key = None if record.key is None else record.key.decode()
        except (DecodeError, UnicodeDecodeError) as error:
            return error
        time = parsed_time(work.time, record.timestamp)
        return Event(
            work.id, name, key, time, data, record.headers, record.topic, record.partition, record.offset
        )

    def _call(
        self, handler: Handler, argument: Event | list[Event], works: list[Work], events: list[Event]
    ) -> None:
        conn = self._conn
        if self._pace is not None:
            self._take_turns(self._pace, len(events))
        attempt, epoch = works[0].attempt, works[0].rerun
        ctx = Context(conn, self._outbox, self._group.name, events, attempt, epoch, self._group.timeout)
        before = conn.sent
        self._desk.context = ctx
        begun = time.monotonic()
        processing = spans.Processing(self._group.name, events, attempt) if self._traces else None
        raised: BaseException | None = None
        try:
            handler.function(argument, ctx)
        except (StopGroup, MemoryError) as error:
            raised = error
            raise
        except BaseException as error:  # noqa: BLE001  # whatever a handler raises is its event's failure
            raised = error
            # The handler's frames, and none of ours. A second name for them would be met where they lead back to.
            error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            self._failed(works, error, sent=conn.sent != before)
            return
        finally:
            self._desk.context = None
            if processing is not None:
                processing.end(raised)
            raised = None  # or it and its frames would keep each other
            took = self._desk.durations.get(events[0].type)
            if took is not None:
                took.note((time.monotonic() - begun) / len(events), len(events))
        if conn.failed or conn.left_open or conn.out_of_step:
            self._failed(works, Swallowed(), sent=True)
            return
        if ctx.emitted is not None:
            if epoch:
                self.withheld += len(ctx.emitted)
            else:
                self.emitted += ctx.emitted
        outcome = DONE
        if ctx.skipped is not None:
            outcome = Outcome("skipped", ctx.skipped)
            self.skipped |= dict.fromkeys(works, ctx.skipped)
            self.plain = False
        for work in works:
            work.outcome = outcome

    @staticmethod
    def _take_turns(pace: Paces, count: int) -> None:
        try:
            pace.take_turns(count)
        except NotNow as error:
            raise Infrastructure from error

    def _failed(self, works: list[Work], error: BaseException, *, sent: bool) -> None:
        conn = self._conn
        if not self._blame and (conn.broken or (conn.failed and is_infrastructure_within(error))):
            raise Infrastructure(handling=True) from error
        if ((conn.failed or conn.out_of_step) and not self._alone) or len(works) > 1:
            raise Unplaced from error
        self.plain = False
        self.doomed = self.doomed or sent
        for work in works:
            work.fail(error, "handler")
            self._blocked.add(work.lane)


def pieces(works: list[Work], most: int = DECODED_TOGETHER) -> Iterator[list[Work]]:
    """The works in order, some at a time: what is decoded may be a hundred times as large as its bytes."""
    piece: list[Work] = []
    size = 0
    for work in works:
        piece.append(work)
        size += len(work.record.value or b"")
        if size > DECODED_BYTES or len(piece) == most:
            yield piece
            piece, size = [], 0
    yield piece


def is_infrastructure_within(error: BaseException) -> bool:
    """Whether the error, or one it came from, is the database's condition."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, psycopg.Error) and is_infrastructure(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
