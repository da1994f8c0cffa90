"""Execution: one run of records in one transaction. Claim, decode, handle, settle, commit.

    run             again and again while the database cannot be used
     ├─ take out    tombstones, types without a handler: nothing to apply, nothing to decode
     └─ apply       the rest, in as few transactions as the failing ones allow; in halves if it must be
         └─ transaction
             ├─ begin     and claim, in one statement; what was claimed before is a duplicate
             ├─ handle    decode and call handlers in order (handling.py)
             ├─ settle    claims of failed events undone, reasons of skipping, emits
             └─ commit

PostgreSQL commits first, Kafka's offset second, never the other way round: what a crash between them makes Kafka
send again, the ledger knows. Nothing here knows Kafka; the processor acts on the outcomes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
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
from stream.handling import Handling, Infrastructure, Unplaced, Work
from stream.lanes import LaneKey, Run, lane_of
from stream.ledger import Ledger
from stream.outbox import Outbox
from stream.outcomes import DUPLICATE, NO_HANDLER, TOMBSTONE, UNRUN, Outcome
from stream.project import Project

log = structlog.get_logger("stream.execution")

LOCK_TIMEOUT_S = 10  # a claim blocked for longer is tried again in a new transaction
PAUSE_FIRST_S, PAUSE_MOST_S = 0.1, 10.0
TRANSACTION_ENDED = "ST001"  # stream.same_transaction()
SAME_TRANSACTION = "select stream.same_transaction()"
# The database's condition out of the handlers of one run, so many times in a row on connections that could be opened:
# then it is some event's doing (a lock it always meets, a statement that ends the session), and is found in halves.
BLAME_AFTER = 3


class Execution:
    """Applies runs of one group on a connection of its own, opened at the first run. Owned by one thread.

    `worker` names it in the ledger. While `stopping` is set, nothing waits for a database that cannot be used.
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
    ) -> None:
        self._group = group
        self._codec = project.codec
        self._outbox = outbox or Outbox(project)
        self._url = database_url
        self._ledger = Ledger(group.name, worker)
        self._stopping = stopping
        self._open: HandlerConnection | None = None
        self._blame = False

    def run(self, run: Run, give_up: Callable[[], bool] = lambda: False) -> list[Outcome]:
        """Apply the run's records; returns one outcome each, in their order, once they are committed.

        While the database cannot be used, the same again after a jittered pause, until `give_up` or stopping:
        then what is left is `unrun`. Raises StopGroup where a handler asks for it, MemoryError, and StreamError
        where the ledger cannot be written for another reason than the database's condition.
        """
        works = self._take_out(run.records)
        pause = PAUSE_FIRST_S
        in_handlers = 0
        while True:
            self._blame = in_handlers >= (BLAME_AFTER if run.attempt == 1 else 1)
            try:
                self._apply(works, run.attempt)
                return _outcomes(works)
            except (Infrastructure, Unreachable) as error:
                self.close()
                in_handlers = in_handlers + 1 if isinstance(error, Infrastructure) and error.handling else 0
                log.warning("database.waiting", group=self._group.name, error=str(error.__cause__ or error))
                if self._stopping.wait(random.uniform(pause / 2, pause)) or give_up():
                    return _outcomes(works)
                pause = min(pause * 2, PAUSE_MOST_S)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close the connection; what it had not committed is gone."""
        if self._open is not None:
            self._open.close()
            self._open = None

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

    def _apply(self, works: list[Work], attempt: int) -> None:
        """Give every work its outcome: all in one transaction, or again without those that failed.

        Where it cannot be said which one failed, half by half: an event that is alone is the one.
        """
        while open_works := _still_open(works):
            unplaced: BaseException | None = None
            try:
                self._transaction(open_works, attempt)
            except Unplaced as error:
                unplaced = error.__cause__ or error
            # Not inside `except`: what fails below is no consequence of this.
            if unplaced is not None:
                if len(open_works) == 1:
                    open_works[0].fail(unplaced, "commit")
                    return
                half = len(open_works) // 2
                self._apply(open_works[:half], attempt)
                _still_open(open_works)  # what stands behind a failed one of the first half
                self._apply(open_works[half:], attempt)
                return

    def _transaction(self, works: list[Work], attempt: int) -> None:
        """Try the works in one transaction: either all have an outcome, or those have that must not be in it."""
        conn = self._connection()
        claimed = self._begin(conn, works, attempt)
        failpoint("consume.claimed")
        handling = Handling(
            conn,
            self._codec,
            self._outbox,
            self._group,
            attempt=attempt,
            epoch=self._ledger.epoch,
            alone=len(claimed) == 1,
            blame=self._blame,
        )
        try:
            committed = self._handle(conn, handling, claimed, together=len(claimed) > 1)
        except BaseException as error:
            self._roll_back(conn, handling, error)
            _forget(works)
            if isinstance(error, psycopg.Error):
                _judge(error, blame=self._blame)
            raise
        if not committed:
            self._roll_back(conn, handling)
            if handling.doomed:
                _forget(work for work in works if _finished(work))

    def _begin(self, conn: HandlerConnection, works: list[Work], attempt: int) -> list[Work]:
        """Begin and claim; returns the works that are this transaction's to apply. The others are duplicates."""
        first: dict[UUID, Work] = {}
        for work in works:
            if first.setdefault(work.id, work) is not work:
                work.outcome = DUPLICATE  # of one in this run
        try:
            before = self._ledger.begin(conn, list(first), attempt)
        except psycopg.Error as error:
            lost = conn.broken
            self.close()
            _forget(works)
            if lost or database.is_infrastructure(error):
                raise Infrastructure from error
            raise StreamError(
                f"the ledger of group {self._group.name!r} cannot be written: {error}"
            ) from error
        for id in before:
            first.pop(id).outcome = DUPLICATE
        return list(first.values())

    def _handle(
        self, conn: HandlerConnection, handling: Handling, works: list[Work], *, together: bool
    ) -> bool:
        """Run the handlers, settle, commit; False where there is nothing to commit, or it must not be."""
        # Together, statements are queued and their answers waited for once. Alone, a handler meets the error of
        # its statement where it made it.
        with conn.pipeline() if together else nullcontext():
            handling.run(works)
            failpoint("consume.handled")
            if handling.doomed or not any(map(_finished, works)):
                return False
            if not together and conn.info.transaction_status == TransactionStatus.IDLE:
                _stop()  # the transaction is gone
            self._settle(conn, handling, works)
            failpoint("consume.before_commit")
            handling.committing = True
            if together:
                conn.execute(SAME_TRANSACTION)
                conn.commit()
            else:  # in one round trip; where the first raises, the second is not run
                conn.execute(SAME_TRANSACTION + "; commit")
        failpoint("consume.after_commit")
        return True

    def _settle(self, conn: HandlerConnection, handling: Handling, works: list[Work]) -> None:
        """What stands between the handlers and the commit. Emits come last: they take locks on their keys."""
        unapplied = [work.id for work in works if work.outcome is NO_HANDLER or not _finished(work)]
        if unapplied:
            self._ledger.unclaim(conn, unapplied)
        if handling.skipped:
            self._ledger.skip(conn, handling.skipped)
        if self._ledger.epoch == 0:  # in a second run of history, what was emitted then was emitted
            self._outbox.write(conn, handling.emitted)

    def _roll_back(
        self, conn: HandlerConnection, handling: Handling, error: BaseException | None = None
    ) -> None:
        """Undo the transaction. Raises StopGroup where a handler has ended it: its claim may be committed."""
        status = conn.info.transaction_status
        if conn.broken or status == TransactionStatus.ACTIVE:
            self.close()
        elif status != TransactionStatus.IDLE:
            try:
                if status == TransactionStatus.INTRANS:  # or is it another one, and the claim committed?
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
            # The idle limit is not armed between the statements of a pipeline; this one holds there too.
            if self._open.info.server_version >= 170000:
                limit = f"{int(self._group.timeout * 2) + 10}s"
                try:
                    self._open.execute("select set_config('transaction_timeout', %s, false)", [limit])
                except psycopg.OperationalError as error:  # lost as soon as it was made
                    raise Infrastructure from error
        return self._open


def _still_open(works: list[Work]) -> list[Work]:
    """The works without an outcome. What stands behind a failed event of its key gets one here: it does not run."""
    blocked: set[LaneKey] = set()
    for work in works:
        if work.lane in blocked and work.outcome is None:
            work.outcome = UNRUN
        elif work.outcome is not None and not work.outcome.finished:
            blocked.add(work.lane)
    return [work for work in works if work.outcome is None]


def _outcomes(works: list[Work]) -> list[Outcome]:
    """The outcomes in order; what is not finished is either the first failed one of its key, or unrun.

    A double of an event that is not finished is not finished either. Bytes that could not be decoded behind an
    event whose list failed later were looked at too early.
    """
    first: dict[UUID, Work] = {}
    blocked: set[LaneKey] = set()
    outcomes = []
    for work in works:
        outcome = work.outcome or UNRUN
        original = first.setdefault(work.id, work)
        if outcome is DUPLICATE and not _finished(original):
            outcome = UNRUN
        if not outcome.finished:
            if work.lane in blocked:
                outcome = UNRUN
            blocked.add(work.lane)
        outcomes.append(outcome)
    return outcomes


def _finished(work: Work) -> bool:
    return work.outcome is not None and work.outcome.finished


def _forget(works: Iterable[Work]) -> None:
    for work in works:
        work.outcome = None


def _judge(error: psycopg.Error, *, blame: bool) -> NoReturn:
    """An error of the transaction as a whole: of which event, cannot be said."""
    if error.sqlstate == TRANSACTION_ENDED:
        _stop(error)
    if database.is_infrastructure(error) and not blame:
        raise Infrastructure(handling=True) from error
    raise Unplaced from error


def _stop(error: BaseException | None = None) -> NoReturn:
    raise StopGroup(
        "a handler ended its transaction with SQL (commit or rollback): what it did may be half done; "
        "the engine alone commits"
    ) from error
