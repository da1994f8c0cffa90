"""Execution: one run of records in one transaction. Claim, decode, handle, settle, commit.

    run             again and again while the database cannot be used
     ├─ set aside   tombstones, types without a handler: nothing to apply, nothing to decode
     └─ apply       the rest, in as few transactions as the failing ones allow; in halves if it must be
         └─ transaction (transaction.py)
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from uuid import UUID

import psycopg
import structlog

from stream.connection import HandlerConnection
from stream.epochs import Epochs
from stream.errors import Unreachable
from stream.events import cloud_attributes, event_id
from stream.failing import Failing, Uncounted
from stream.groups import ConsumerGroup
from stream.handling import Infrastructure, Unplaced, blame
from stream.lanes import Run, lane_of
from stream.ledger import Ledger, Taken
from stream.opening import Opening, TooManyLocks
from stream.outbox import Outbox
from stream.outcomes import BUSY, DUPLICATE, NO_HANDLER, TOMBSTONE, UNRUN, WOKEN, Outcome
from stream.pace import NotNow, Paces
from stream.project import Project
from stream.settlement import Settlement
from stream.suspects import Deaths
from stream.transaction import Transactions, judge
from stream.waking import Waking
from stream.watchdog import Desk
from stream.work import Work, leave_behind

log = structlog.get_logger("stream.execution")

PAUSE_FIRST_S, PAUSE_MOST_S = 0.1, 10.0
# The database's condition out of the handlers of one run, so many times in a row on connections that could be opened:
# then it is some event's doing (a lock it always meets, a statement that ends the session), and is found in halves.
BLAME_AFTER = 3


class Execution:
    """Applies runs of one group on a connection of its own, opened at the first run. Owned by one thread.

    `worker` names it in the ledger. While `stopping` is set, nothing waits for a database that cannot be used.
    `failing` says what becomes of failed events; without it nothing does, and their outcome is `failed`. `desk` shows
    the watchdog what is in hand; `pace` says when an event may start; `epochs` which records are of a range of
    history that is run again.
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
        pace: Paces | None = None,
        epochs: Epochs | None = None,
    ) -> None:
        self._group = group
        self._stopping = stopping
        self._parks = failing is not None
        self._pace = pace
        self._ledger = Ledger(group.name, worker)
        outbox = outbox or Outbox(project)
        self._opening = Opening(
            self._ledger, None if failing is None else failing.parking, Epochs() if epochs is None else epochs
        )
        self._settlement = Settlement(self._ledger, outbox, failing)
        self._transactions = Transactions(
            group,
            project.codec,
            outbox,
            database_url,
            ledger=self._ledger,
            settlement=self._settlement,
            desk=desk,
            pace=pace,
        )
        self._waking = Waking(group, self._opening, self._transactions)
        self._deaths = None if failing is None else Deaths(group.name, failing.policy.settings.crashes)

    def run(self, run: Run, give_up: Callable[[], bool] = lambda: False) -> list[Outcome]:
        """Apply the run's records; returns one outcome each, in their order, once they are committed.

        While the database cannot be used, the same again after a jittered pause, until `give_up` or stopping:
        then what is left is `unrun`, as it is when the group is halted meanwhile. Raises StopGroup where a handler
        asks for it and nothing says what becomes of failures, MemoryError, and StreamError where the ledger
        cannot be written for another reason than the database's condition.
        """
        self._settlement.begin_run(run)
        if self._pace is not None:
            self._pace.begin(run.records)
        if run.retry:
            lanes = self._waking.lanes_of(run.records)
            waiting = list(dict.fromkeys(lane for lane in lanes if lane is not None))
            taken: set[int] = set()
            wake = (
                partial(self._wake_alone, waiting, taken, give_up)
                if run.suspect
                else partial(self._waking.run, waiting, taken, 1 if run.probe else None)
            )
            self._persist(wake, give_up, blame_after=1)
            self._acquit_the_rest()
            return [BUSY if lane in taken else UNRUN if lane in waiting else WOKEN for lane in lanes]
        works = self._works_of(run)
        self._persist(partial(self._apply_alone if run.suspect else self._apply_all, works, give_up), give_up)
        self._acquit_the_rest()
        return _outcomes(works)

    def close(self) -> None:
        """Close the connection; what it had not committed is gone."""
        self._transactions.close()

    def _persist(
        self, act: Callable[[], None], give_up: Callable[[], bool], *, blame_after: int = BLAME_AFTER
    ) -> None:
        """Act until the database lets it be done, or it is not to be done now."""
        pause = PAUSE_FIRST_S
        in_handlers = 0
        while True:
            self._transactions.blames = in_handlers >= blame_after
            try:
                if self._pace is not None:
                    self._pace.approach()
                return act()
            except (Infrastructure, Unreachable, NotNow) as error:
                self.close()
                if self._stopping.is_set() and isinstance(error.__cause__ or error, NotNow):
                    return  # no turn is taken any more
                in_handlers = in_handlers + 1 if isinstance(error, Infrastructure) and error.handling else 0
                reason = str(error.__cause__ or error)
                log.warning("database.waiting", group=self._group.name, error=reason, hint="stream doctor")
                if self._stopping.wait(random.uniform(pause / 2, pause)) or give_up():
                    return
                pause = min(pause * 2, PAUSE_MOST_S)
            except (Uncounted, Taken):
                return
            except BaseException:
                self.close()
                raise
            finally:
                if self._pace is not None:
                    self._pace.give_back()

    # -- fresh records ------------------------------------------------------------------------------------------

    def _works_of(self, run: Run) -> list[Work]:
        """The records as works; those with nothing to apply have their outcome already."""
        handlers = self._group.handlers
        works: list[Work] = []
        for record in run.records:
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
        if run.first:
            first = dict(run.first)
            for work in works:
                work.first = first.pop(work.lane, None)
        self._opening.date(works)
        return works

    def _apply_all(self, works: list[Work], _give_up: Callable[[], bool]) -> None:
        leave_behind(works)  # also of what failed before the database was lost in the middle of it
        self._apply(
            [work for work in works if not work.finished]
        )  # what is committed is settled, whatever comes

    def _apply(self, works: list[Work]) -> None:
        """Give every work its outcome: all in one transaction, or again without those that failed.

        Where it cannot be said which one failed, half by half: an event that is alone is the one.
        """
        while pending := [work for work in works if work.outcome is None or self._owes(work)]:
            unplaced: BaseException | None = None
            try:
                self._transactions.attempt(works, partial(self._opening.fresh, works=pending))
            except Unplaced as error:
                unplaced = error.reason
            except TooManyLocks as error:
                unplaced = error
            # Not inside `except`: what fails below is no consequence of this.
            if unplaced is None:
                continue
            self._settlement.redo()
            runnable = [work for work in pending if work.outcome is None]
            alone = len(runnable) <= 1 and not isinstance(unplaced, TooManyLocks)
            if alone:
                blame(runnable, unplaced)
            unplaced = None  # its frames lead back to here
            if alone:
                leave_behind(works)
                continue
            half = works.index(pending[len(pending) // 2])
            self._apply(works[:half])
            leave_behind(works)
            self._apply(works[half:])
            return

    def _owes(self, work: Work) -> bool:
        """Failed in a transaction that was undone: it is still to be written down."""
        return self._parks and work.failed

    # -- suspects, alone each ---------------------------------------------------------------------------------------

    def _apply_alone(self, works: list[Work], give_up: Callable[[], bool]) -> None:
        leave_behind(works)
        with self._asking() as (conn, deaths):
            deaths.sift(conn, self._ledger, [work for work in works if work.outcome is None])
            for work in works:
                leave_behind(works)
                if self._stopping.is_set() or give_up():
                    return
                if work.outcome is None or self._owes(work):
                    try:
                        deaths.alone(self._transactions.connection(), work, partial(self._apply_one, work))
                    except Taken:
                        work.outcome = BUSY

    def _apply_one(self, work: Work) -> bool:
        self._apply([work])
        return work.outcome is not BUSY

    def _wake_alone(self, lanes: list[int], taken: set[int], give_up: Callable[[], bool]) -> None:
        with self._asking() as (conn, deaths):
            while lanes and not (self._stopping.is_set() or give_up()):
                for head in self._opening.peek(conn, lanes[0]):
                    try:
                        deaths.alone(conn, head, partial(self._wake_one, lanes[0], taken, head))
                    except Taken:
                        taken.add(lanes[0])
                lanes.pop(0)

    def _acquit_the_rest(self) -> None:
        """Tries that ended without an outcome, and without a death: the group is stopping, or halted."""
        if self._deaths is not None and self._deaths.blamed:
            try:
                self._deaths.pardon_all(self._transactions.connection())
            except (psycopg.Error, Infrastructure, Unreachable) as error:
                log.warning("blame.left", group=self._group.name, error=str(error.__cause__ or error))

    def _wake_one(self, lane: int, taken: set[int], head: Work) -> bool:
        self._waking.run([lane], taken, most=1, failed={head.place: head} if head.failed else None)
        return lane not in taken

    @contextmanager
    def _asking(self) -> Iterator[tuple[HandlerConnection, Deaths]]:
        """For statements between transactions."""
        assert self._deaths is not None
        try:
            yield self._transactions.connection(), self._deaths
        except psycopg.Error as error:
            judge(error)


def _outcomes(works: list[Work]) -> list[Outcome]:
    """The outcomes in order. A double of an event that is not finished is not finished either."""
    outcomes = [UNRUN if work.outcome is None else work.outcome for work in works]
    if any(outcome is DUPLICATE for outcome in outcomes):
        first: dict[UUID, Work] = {}
        for n, work in enumerate(works):
            original = first.setdefault(work.id, work)
            if outcomes[n] is DUPLICATE and original.lane == work.lane and not original.finished:
                outcomes[n] = UNRUN
    return outcomes
