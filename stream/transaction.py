"""Transaction: works of a run in one database transaction. Begin and claim, handle, settle, commit; or undo all of it.

Where nothing failed and nothing was parked, what stands between the handlers and the commit is the emits and nothing
else: `plain` below. That way has to stay as cheap as if there were no failing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import NoReturn

import psycopg
import structlog
from psycopg.pq import TransactionStatus

from stream import database
from stream.connection import HandlerConnection
from stream.errors import StopGroup, StreamError
from stream.failpoints import failpoint
from stream.groups import ConsumerGroup
from stream.handling import Handling, Infrastructure, Unplaced
from stream.ledger import Ledger, Taken
from stream.outbox import Outbox
from stream.pace import Paces
from stream.schemas import AvroCodec
from stream.settlement import Settlement
from stream.watchdog import Desk
from stream.work import Work, forget, leave_behind, let_go

log = structlog.get_logger("stream.execution")

LOCK_TIMEOUT_S = 10  # a claim blocked for longer is tried again later
TRANSACTION_ENDED = "ST001"  # stream.same_transaction()
SAME_TRANSACTION = "select stream.same_transaction()"

CAREFUL_FOR = 50  # transactions, once a failure has cost its neighbours a second try

Begin = Callable[[HandlerConnection], list[Work]]  # begins, and returns the works that are the transaction's


class TransactionEnded(StopGroup):
    """Raised when a handler ended its transaction with SQL: what it did may be half done."""


class Transactions:
    """The transactions of one worker, on a connection of its own, opened at the first. Owned by one thread.

    `blames`: the database's condition is now taken for some event's doing.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        codec: AvroCodec,
        outbox: Outbox,
        database_url: str,
        *,
        ledger: Ledger,
        settlement: Settlement,
        desk: Desk | None,
        pace: Paces | None,
    ) -> None:
        self.blames = False
        self.careful_for = 0
        self._group = group
        self._codec = codec
        self._outbox = outbox
        self._url = database_url
        self._ledger = ledger
        self._settlement = settlement
        self._desk = desk or Desk()
        self._pace = pace
        self._open: HandlerConnection | None = None

    def attempt(self, works: list[Work], begin: Begin) -> bool:
        """Try the works in one transaction. False: it was undone, and those have an outcome that failed in it.

        Raises Unplaced, Infrastructure, Unreachable, Taken, Uncounted, StopGroup, MemoryError, and StreamError where
        the ledger cannot be written for another reason than the database's condition.
        """
        conn = self.connection()
        pending = self._begin(conn, begin)
        runnable = [work for work in pending if work.outcome is None]
        failpoint("consume.claimed")
        handling = Handling(
            conn,
            self._codec,
            self._outbox,
            self._group,
            alone=len(runnable) == 1,
            blame=self.blames,
            careful=self.careful_for > 0 and len(runnable) > 1,
            desk=self._desk,
            pace=self._pace,
        )
        try:
            committed = self._handle(conn, handling, pending, runnable, works)
        except BaseException as error:
            self._roll_back(conn, handling, error)
            let_go(pending)
            # What failed in an earlier transaction is still to be written down; the rest was not tried.
            forget(work for work in pending if not work.failed or work in runnable)
            if isinstance(error, psycopg.Error):
                judge(error, blame=self.blames)
            if isinstance(error, StopGroup) and not isinstance(error, TransactionEnded):
                self._settlement.stop_group(error)
            raise
        if not committed:
            self._roll_back(conn, handling)
            let_go(pending)
            if handling.doomed:
                self.careful_for = CAREFUL_FOR
                self._settlement.redo()
                forget(work for work in pending if work.finished)
                leave_behind(works)  # a double of what failed was a duplicate until now
        return not handling.doomed

    def connection(self) -> HandlerConnection:
        """The open one, or a new one. Raises Unreachable and Infrastructure."""
        if self._open is None:
            self._desk.thread = threading.get_ident()
            self._open = database.connect(
                self._url,
                application_name=f"stream-{self._group.name}",
                autocommit=True,  # begin and commit are ours: the begin goes out with the claim
                settings={
                    "statement_timeout": str(int(self._group.timeout * 1000)),
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

    def close(self) -> None:
        """Close the connection; what it had not committed is gone."""
        if self._open is not None:
            self._open.close()
            self._open = None

    # -- its steps --------------------------------------------------------------------------------------------------

    def _begin(self, conn: HandlerConnection, begin: Begin) -> list[Work]:
        try:
            return begin(conn)
        except psycopg.errors.LockNotAvailable as error:
            try:
                conn.rollback()
            except psycopg.Error:
                self.close()
            self._settlement.redo()  # in smaller runs, fewer wait for it
            raise Taken from error
        except psycopg.Error as error:
            lost = conn.broken
            self.close()
            if lost or database.is_infrastructure(error):
                raise Infrastructure from error
            raise StreamError(
                f"the ledger of group {self._group.name!r} cannot be written: {error}"
            ) from error

    def _handle(
        self,
        conn: HandlerConnection,
        handling: Handling,
        pending: list[Work],
        runnable: list[Work],
        works: list[Work],
    ) -> bool:
        """Run the handlers, settle, commit; False where there is nothing to commit, or it must not be."""
        # Together, statements are queued and their answers waited for once. Alone, a handler meets the error of
        # its statement where it made it.
        together = len(runnable) > 1
        settlement = self._settlement
        with conn.pipeline() if together else nullcontext():
            handling.run(runnable)
            self.careful_for = CAREFUL_FOR if handling.redone else max(0, self.careful_for - 1)
            failpoint("consume.handled")
            if not handling.plain:
                leave_behind(works)  # tried again beside a failed one, an earlier event may fail too
                settlement.postpone(runnable)
            # Fresh, all of them this transaction's, of no epoch, and all of them done.
            plain = (
                handling.plain
                and 0 < len(runnable) == len(pending)
                and runnable[0].row is None
                and not any([work.epoch for work in runnable])
            )
            if not plain and (handling.doomed or not settlement.worth_committing(works)):
                return False
            if not together and conn.info.transaction_status == TransactionStatus.IDLE:
                _stop()  # the transaction is gone
            settled = None
            if plain:
                settlement.emit(conn, handling)
            else:
                settled = settlement.settle(conn, handling, works)
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
        if handling.withheld:
            log.info("emits.withheld", group=self._group.name, events=handling.withheld)
        if settled is None:
            settlement.applied(len(pending))
        else:
            settlement.committed(settled)
        let_go(pending)  # committed: not this transaction's any more
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


def judge(error: psycopg.Error, *, blame: bool = False) -> NoReturn:
    """An error of the transaction as a whole: of which event, cannot be said. Raises Unplaced, or Infrastructure."""
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
