"""Execution: one run of records in one transaction. Claim, decode, handle, settle, commit.

    run             again and again while the database cannot be used
     ├─ take out    tombstones, types without a handler: nothing to apply, nothing to decode
     └─ apply       the rest, in as few transactions as the failing ones allow; in halves if it must be
         └─ transaction
             ├─ begin     and claim, past nothing that is parked (opening.py)
             ├─ handle    decode and call handlers in order (handling.py)
             ├─ settle    claims of what was not applied undone, what failed parked or buried (settlement.py), emits
             └─ commit

Records of the retry topic only wake: what runs then are the parked rows of their keys, in the same way.

PostgreSQL commits first, Kafka's offset second, never the other way round: what a crash between them makes Kafka
send again, the ledger knows. Nothing here knows Kafka; the processor acts on the outcomes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import NoReturn
from uuid import UUID

import psycopg
import structlog
from psycopg.pq import TransactionStatus

from stream import database
from stream.connection import HandlerConnection
from stream.errors import StopGroup, StreamError, Unreachable
from stream.events import Record, cloud_attributes, event_id
from stream.failpoints import failpoint
from stream.groups import ConsumerGroup
from stream.handling import Handling, Infrastructure, Unplaced, blame
from stream.lanes import Run, lane_of
from stream.ledger import Ledger
from stream.opening import Opening, TooManyLocks
from stream.outbox import Outbox
from stream.outcomes import DUPLICATE, NO_HANDLER, TOMBSTONE, UNRUN, WOKEN, Outcome
from stream.pace import NotNow, Pace
from stream.project import Project
from stream.settlement import Failing, Settlement, Uncounted
from stream.suspects import Deaths
from stream.waking import Begin, Waking
from stream.watchdog import Desk
from stream.work import Work, forget, leave_behind, undone

log = structlog.get_logger("stream.execution")

LOCK_TIMEOUT_S = 10  # a claim blocked for longer is tried again in a new transaction
PAUSE_FIRST_S, PAUSE_MOST_S = 0.1, 10.0
TRANSACTION_ENDED = "ST001"  # stream.same_transaction()
SAME_TRANSACTION = "select stream.same_transaction()"
# The database's condition out of the handlers of one run, so many times in a row on connections that could be opened:
# then it is some event's doing (a lock it always meets, a statement that ends the session), and is found in halves.
BLAME_AFTER = 3


class TransactionEnded(StopGroup):
    """Raised when a handler ended its transaction with SQL: what it did may be half done."""


class Execution:
    """Applies runs of one group on a connection of its own, opened at the first run. Owned by one thread.

    `worker` names it in the ledger. While `stopping` is set, nothing waits for a database that cannot be used.
    `failing` says what becomes of failed events; without it nothing does, and their outcome is `failed`. `desk` shows
    the watchdog what is in hand; `pace` says when an event may start.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        project: Project,
        database_url: str,
        *,
        worker: str,
        stopping: threading.Event,
        outbox: Outbox | None = None,
        failing: Failing | None = None,
        desk: Desk | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._group = group
        self._codec = project.codec
        self._outbox = outbox or Outbox(project)
        self._url = database_url
        self._ledger = Ledger(group.name, worker)
        self._stopping = stopping
        self._failing = failing
        self._desk = desk
        self._pace = pace
        self._opening = Opening(self._ledger, None if failing is None else failing.parking)
        self._settlement = Settlement(self._ledger, self._outbox, failing)
        self._waking = Waking(group, self._opening, self._transaction)
        self._blames = False  # the database's condition is now taken for some event's doing
        self._deaths = None if failing is None else Deaths(group.name, failing.policy.settings.crashes)
        self._open: HandlerConnection | None = None

    def run(self, run: Run, give_up: Callable[[], bool] = lambda: False) -> list[Outcome]:
        """Apply the run's records; returns one outcome each, in their order, once they are committed.

        While the database cannot be used, the same again after a jittered pause, until `give_up` or stopping:
        then what is left is `unrun`, as it is when the group is halted meanwhile. Raises StopGroup where a handler
        asks for it and nothing says what becomes of failures, MemoryError, and StreamError where the ledger
        cannot be written for another reason than the database's condition.
        """
        self._settlement.begin_run(run)
        if self._desk is not None:
            self._desk.thread = threading.get_ident()
        if run.retry:
            lanes = self._waking.lanes_of(run.records)
            waiting = list(dict.fromkeys(lane for lane in lanes if lane is not None))
            wake = (
                partial(self._wake_alone, waiting, give_up)
                if run.suspect
                else partial(self._waking.run, waiting)
            )
            self._persist(wake, give_up, blame_after=1)
            return [UNRUN if lane in waiting else WOKEN for lane in lanes]
        works = self._take_out(run.records)
        self._persist(partial(self._apply_alone if run.suspect else self._apply_all, works, give_up), give_up)
        return _outcomes(works)

    def close(self) -> None:
        """Close the connection; what it had not committed is gone."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _persist(
        self, act: Callable[[], None], give_up: Callable[[], bool], *, blame_after: int = BLAME_AFTER
    ) -> None:
        """Act until the database lets it be done, or it is not to be done now."""
        pause = PAUSE_FIRST_S
        in_handlers = 0
        while True:
            self._blames = in_handlers >= blame_after
            try:
                if self._pace is not None:
                    self._pace.approach()
                return act()
            except (Infrastructure, Unreachable, NotNow) as error:
                self.close()
                in_handlers = in_handlers + 1 if isinstance(error, Infrastructure) and error.handling else 0
                log.warning("database.waiting", group=self._group.name, error=str(error.__cause__ or error))
                if self._stopping.wait(random.uniform(pause / 2, pause)) or give_up():
                    return
                pause = min(pause * 2, PAUSE_MOST_S)
            except Uncounted:
                return
            except BaseException:
                self.close()
                raise

    # -- fresh records ------------------------------------------------------------------------------------------

    def _take_out(self, records: Iterable[Record]) -> list[Work]:
        """The records as works; those with nothing to apply have their outcome already."""
        handlers = self._group.handlers
        works: list[Work] = []
        for record in records:
            try:
                id, type, time = cloud_attributes(record.headers)
            except UnicodeDecodeError as error:
                work = Work(record, lane_of(record), event_id(record, None), None, None)
                work.fail(error, "decode")
            else:
                work = Work(record, lane_of(record), event_id(record, id), type, time)
                if record.value is None:
                    work.outcome = TOMBSTONE
                elif type is not None and type not in handlers:
                    work.outcome = NO_HANDLER
            works.append(work)
        return works

    def _apply_all(self, works: list[Work], _give_up: Callable[[], bool]) -> None:
        leave_behind(works)  # also of what failed before the database was lost in the middle of it
        self._apply(works)

    def _apply(self, works: list[Work]) -> None:
        """Give every work its outcome: all in one transaction, or again without those that failed.

        Where it cannot be said which one failed, half by half: an event that is alone is the one.
        """
        while pending := [work for work in works if work.outcome is None or self._owes(work)]:
            unplaced: BaseException | None = None
            try:
                self._transaction(works, partial(self._begin_fresh, pending))
            except Unplaced as error:
                unplaced = error.reason
            except TooManyLocks as error:
                unplaced = error
            # Not inside `except`: what fails below is no consequence of this.
            if unplaced is None:
                continue
            runnable = [work for work in pending if work.outcome is None]
            if len(runnable) <= 1 and not isinstance(unplaced, TooManyLocks):
                blame(runnable, unplaced)
                leave_behind(works)
                continue
            half = works.index(pending[len(pending) // 2])
            self._apply(works[:half])
            leave_behind(works)
            self._apply(works[half:])
            return

    def _owes(self, work: Work) -> bool:
        """Failed in a transaction that was undone: it is still to be written down."""
        return work.failed and self._failing is not None

    def _begin_fresh(self, pending: list[Work], conn: HandlerConnection) -> list[Work]:
        self._opening.fresh(conn, pending)
        return pending

    # -- suspects, alone each ---------------------------------------------------------------------------------------

    def _apply_alone(self, works: list[Work], give_up: Callable[[], bool]) -> None:
        leave_behind(works)
        with self._asking() as (conn, deaths):
            deaths.sift(conn, self._ledger.epoch, [work for work in works if work.outcome is None])
            for work in works:
                leave_behind(works)
                if self._stopping.is_set() or give_up():
                    return
                if work.outcome is None or self._owes(work):
                    deaths.alone(self._connection(), work, partial(self._apply, [work]))

    def _wake_alone(self, lanes: list[int], give_up: Callable[[], bool]) -> None:
        with self._asking() as (conn, deaths):
            while lanes and not (self._stopping.is_set() or give_up()):
                for head in self._opening.peek(conn, lanes[0]):
                    deaths.alone(conn, head, partial(self._wake_one, lanes[0], head))
                lanes.pop(0)

    def _wake_one(self, lane: int, head: Work) -> None:
        self._waking.run([lane], most=1, failed={head.place: head} if head.failed else None)

    @contextmanager
    def _asking(self) -> Iterator[tuple[HandlerConnection, Deaths]]:
        """For statements between transactions."""
        assert self._deaths is not None
        try:
            yield self._connection(), self._deaths
        except psycopg.Error as error:
            _judge(error)

    # -- one transaction ------------------------------------------------------------------------------------------

    def _transaction(self, works: list[Work], begin: Begin) -> bool:
        """Try the works in one transaction. False: it was undone, and those have an outcome that failed in it."""
        conn = self._connection()
        pending = self._begin(conn, begin)
        runnable = [work for work in pending if work.outcome is None]
        failpoint("consume.claimed")
        handling = Handling(
            conn,
            self._codec,
            self._outbox,
            self._group,
            epoch=self._ledger.epoch,
            alone=len(runnable) == 1,
            blame=self._blames,
            desk=self._desk,
            pace=self._pace,
        )
        try:
            committed = self._handle(conn, handling, runnable, works)
        except BaseException as error:
            self._roll_back(conn, handling, error)
            undone(pending)
            # What failed in an earlier transaction is still to be written down; the rest was not tried.
            forget(work for work in pending if not work.failed or work in runnable)
            if isinstance(error, psycopg.Error):
                _judge(error, blame=self._blames)
            if isinstance(error, StopGroup) and not isinstance(error, TransactionEnded):
                self._settlement.stop_group(error)
            raise
        if not committed:
            self._roll_back(conn, handling)
            undone(pending)
            if handling.doomed:
                forget(work for work in pending if work.finished)
                leave_behind(works)  # a double of what failed was a duplicate until now
        return not handling.doomed

    def _begin(self, conn: HandlerConnection, begin: Begin) -> list[Work]:
        try:
            return begin(conn)
        except psycopg.Error as error:
            lost = conn.broken
            self.close()
            if lost or database.is_infrastructure(error):
                raise Infrastructure from error
            raise StreamError(
                f"the ledger of group {self._group.name!r} cannot be written: {error}"
            ) from error

    def _handle(
        self, conn: HandlerConnection, handling: Handling, runnable: list[Work], works: list[Work]
    ) -> bool:
        """Run the handlers, settle, commit; False where there is nothing to commit, or it must not be."""
        # Together, statements are queued and their answers waited for once. Alone, a handler meets the error of
        # its statement where it made it.
        together = len(runnable) > 1
        with conn.pipeline() if together else nullcontext():
            handling.run(runnable)
            failpoint("consume.handled")
            if handling.doomed or not self._settlement.worth_committing(works):
                return False
            if not together and conn.info.transaction_status == TransactionStatus.IDLE:
                _stop()  # the transaction is gone
            settled = self._settlement.settle(conn, handling, works)
            failpoint("consume.before_commit")
            handling.committing = True
            if not handling.handled:
                conn.commit()
            elif together:
                conn.execute(SAME_TRANSACTION)
                conn.commit()
            else:  # in one round trip; where the first raises, the second is not run
                conn.execute(SAME_TRANSACTION + "; commit")
        failpoint("consume.after_commit")
        self._settlement.committed(settled)
        return True

    def _roll_back(
        self, conn: HandlerConnection, handling: Handling, error: BaseException | None = None
    ) -> None:
        """Undo the transaction. Raises StopGroup where a handler has ended it: its claim may be committed."""
        status = conn.info.transaction_status
        if conn.broken or status == TransactionStatus.ACTIVE:
            self.close()
        elif status != TransactionStatus.IDLE:
            try:
                # Or is it another transaction, and the claim committed?
                if status == TransactionStatus.INTRANS and handling.handled:
                    conn.execute(SAME_TRANSACTION)
                conn.rollback()
            except psycopg.Error as found:
                self.close()
                if found.sqlstate == TRANSACTION_ENDED:
                    _stop(error)
        elif not handling.committing:  # a refused commit leaves no transaction either
            _stop(error)

    def _connection(self) -> HandlerConnection:
        if self._open is None:
            timeout_ms = str(int(self._group.timeout * 1000))
            self._open = database.connect(
                self._url,
                application_name=f"stream-{self._group.name}",
                autocommit=True,  # begin and commit are ours: the begin goes out with the claim
                settings={
                    "statement_timeout": timeout_ms,
                    "lock_timeout": f"{LOCK_TIMEOUT_S}s",
                    # A frozen worker's claims and locks fall, so that its keys go on elsewhere.
                    "idle_in_transaction_session_timeout": f"{int(self._group.timeout * 2) + 10}s",
                    "client_connection_check_interval": "2s",
                    "tcp_user_timeout": "10s",
                },
                connection_class=HandlerConnection,
            )
            try:
                # The idle limit is not armed between the statements of a pipeline; this one holds there too.
                self._open.limit_transactions(int(self._group.timeout * 2) + 10)
            except psycopg.OperationalError as error:  # lost as soon as it was made
                raise Infrastructure from error
        return self._open


def _outcomes(works: list[Work]) -> list[Outcome]:
    """The outcomes in order. A double of an event that is not finished is not finished either."""
    first: dict[UUID, Work] = {}
    outcomes = []
    for work in works:
        original = first.setdefault(work.id, work)
        unrun = work.outcome is None or (work.outcome is DUPLICATE and not original.finished)
        outcomes.append(UNRUN if unrun or work.outcome is None else work.outcome)
    return outcomes


def _judge(error: psycopg.Error, *, blame: bool = False) -> NoReturn:
    """An error of the transaction as a whole: of which event, cannot be said."""
    if error.sqlstate == TRANSACTION_ENDED:
        _stop(error)
    if database.is_infrastructure(error) and not blame:
        raise Infrastructure(handling=True) from error
    raise Unplaced from error


def _stop(error: BaseException | None = None) -> NoReturn:
    raise TransactionEnded(
        "a handler ended its transaction with SQL (commit or rollback): what it did may be half done; "
        "the engine alone commits"
    ) from error
