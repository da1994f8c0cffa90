"""Settlement: what stands between the handlers and the commit. What was applied stays, what failed is written down.

postpone a first failure that is tried again soon: the claim undone, and nothing written; its lane waits in memory
retry    the claim undone, a parked row with its due time, later events of its key behind it, a live head
dead     the claim becomes the ledger's `dead`, a letter and its record for <group>.dlq; `on_dead` says whether
         the key goes on or its row stays, held
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import structlog

from stream.connection import HandlerConnection
from stream.database import query
from stream.errors import StopGroup
from stream.failing import Failing, GroupHalted, ProbeFailed
from stream.failpoints import failpoint
from stream.failures import failure_of
from stream.handling import Handling
from stream.lanes import Run
from stream.ledger import Ledger
from stream.outbox import Outbox, Prepared
from stream.outcomes import DEAD, DONE, DUPLICATE, NO_HANDLER, PARKED, UNRUN, FirstTry, Outcome
from stream.parking import Verdict, dead_kind
from stream.policy import Dead, Retry
from stream.work import Work

log = structlog.get_logger("stream.execution")


@dataclass(slots=True)
class Settled:
    """What a transaction decided; it holds once that is committed."""

    works: Sequence[Work]
    verdicts: list[Verdict] = field(default_factory=list)
    outcomes: list[tuple[Work, Outcome]] = field(default_factory=list)
    letters: dict[UUID, int] = field(default_factory=dict)  # by event id

    def reach(self, parked: str, buried: str, unparked: str) -> None:
        """The failpoints of what this transaction does."""
        if any(verdict.retry is not None for verdict in self.verdicts):
            failpoint(f"fail.{parked}")
        if any(verdict.retry is None for verdict in self.verdicts):
            failpoint(f"fail.{buried}")
        if any(work.row is not None and work.finished for work in self.works):
            failpoint(f"fail.{unparked}")


class Settlement:
    """Settles the transactions of one worker. Without `failing`, failed events leave nothing behind."""

    def __init__(self, ledger: Ledger, outbox: Outbox, failing: Failing | None) -> None:
        self._ledger = ledger
        self._outbox = outbox
        self._failing = failing
        self._run = Run([])

    def begin_run(self, run: Run) -> None:
        """All that is settled from now on is of this run."""
        self._run = run

    def redo(self) -> None:
        """A transaction was undone because of what failed in it."""
        self._run.redone = True

    def postpone(self, works: Sequence[Work]) -> None:
        """First failures that are tried again soon wait for it in memory: nothing is written about them."""
        failing, run = self._failing, self._run
        if failing is None or run.retry or run.probe or run.suspect:
            return
        in_a_row = _behind_the_last_success(works)
        postponed = 0
        for work in works:
            if not (work.failed and work.attempt == 1 and failing.may_postpone(postponed)):
                continue
            assert work.outcome is not None and work.outcome.error is not None
            if getattr(
                work.outcome.error, "retry_after", None
            ):  # its turn in the budget is taken when it is parked
                continue
            verdict = self._verdict(failing, work, stack=False)  # it is logged when it fails again
            failure, retry = verdict.failure, verdict.retry
            if retry is None or retry.delay_s > failing.policy.settings.soon_s:
                continue
            now = time.monotonic()
            first = FirstTry(now, now + retry.delay_s, failure.error_class, failure.message)
            # Without its error, whose frames hold all that the run holds, and are held by it: until a collection.
            work.outcome = replace(work.outcome, kind="postponed", first=first, error=None)
            postponed += 1
            failing.note(verdict)
            self._log(verdict)
            if failure.kind == "unavailable" and id(work) in in_a_row:
                failing.health.unavailable(work.lane)

    def worth_committing(self, works: Sequence[Work]) -> bool:
        """Whether the transaction has anything to say."""
        return any(
            work.outcome is not DUPLICATE or work.row is not None
            for work in works
            if (work.claimed and work.finished) or work.outcome in (PARKED, DUPLICATE)
        ) or (self._failing is not None and any(work.failed for work in works))

    def settle(self, conn: HandlerConnection, handling: Handling, works: Sequence[Work]) -> Settled:
        """Write it all, up to the commit. Emits come last: they take locks on their keys. Raises Uncounted."""
        settled = Settled(works)
        special = [work for work in works if work.outcome is not DONE or work.row is not None]
        failing = self._failing if any(map(_moves, special)) else None
        if failing is not None:
            self._judge(conn, failing, special, settled)
        given_up = {id(v.work) for v in settled.verdicts if v.retry is None}
        unapplied = [
            work
            for work in special
            if work.claimed and (work.outcome is NO_HANDLER or not work.finished) and id(work) not in given_up
        ]
        if unapplied:
            self._ledger.unclaim(conn, unapplied)
        if handling.skipped:
            self._ledger.skip(conn, handling.skipped)
        if self._failing is not None:
            self._failing.parking.supersede(conn, [work for work in works if _tried_at_last(work)])
        if failing is not None:
            # In a pipeline that is open already, nothing here is waited for but by what asks for a letter's number.
            with conn.pipeline() if conn.open_pipeline is None else nullcontext():
                letters = self._write_down(conn, failing, special, settled, handling.emitted)
            if letters is not None:
                ids, numbers, _ = letters.fetchone()
                settled.letters = dict(zip(ids, numbers, strict=True))
            settled.reach("parking", "burying", "unparking")
        else:
            self.emit(conn, handling)
        return settled

    def emit(self, conn: HandlerConnection, handling: Handling) -> None:
        """Write what handlers emitted, last: it takes locks on keys. All there is to settle where all is done."""
        self._outbox.write(conn, handling.emitted)

    def applied(self, count: int) -> None:
        """A transaction in which so many fresh events were done, and nothing else happened, is committed."""
        if self._failing is not None:
            self._run.succeeded = True
            self._failing.health.succeeded(count)

    def committed(self, settled: Settled) -> None:
        """It holds: give works their outcome, and tell the group's health."""
        for work, outcome in settled.outcomes:
            work.outcome = outcome
        done = sum(work.claimed and work.outcome is DONE for work in settled.works)
        settled.reach("parked", "buried", "unparked")
        if self._run.retry:
            self._run.woken += [(w.record.topic, w.outcome) for w in settled.works if w.outcome is not None]
        if self._failing is None:
            return
        health = self._failing.health
        in_a_row = _behind_the_last_success(settled.works)
        for verdict in settled.verdicts:
            self._failing.note(verdict)
            self._log(verdict, settled.letters.get(verdict.work.id))
            if verdict.retry is None and verdict.failure.deploy_fault:
                health.died()
            elif verdict.failure.kind == "unavailable" and id(verdict.work) in in_a_row:
                health.unavailable(verdict.work.lane)
        if done:
            self._run.succeeded = True
            health.succeeded(done)

    def stop_group(self, error: StopGroup) -> None:
        """A handler says that the group must stop: raises GroupHalted where there is something that halts."""
        if self._failing is not None:
            self._failing.health.halt(f"a handler stopped the group: {error}")
            raise GroupHalted from error

    # -- inside -----------------------------------------------------------------------------------------------------

    def _judge(self, conn: HandlerConnection, failing: Failing, works: list[Work], settled: Settled) -> None:
        verdicts = [self._verdict(failing, work) for work in works if work.failed]
        if not verdicts:
            return
        # Permanent, undecodable and deadly is an event whatever its provider says; not so one that used up its tries.
        if self._run.probe and any(v.failure.kind in ("failure", "unavailable") for v in verdicts):
            failure = verdicts[0].failure
            log.info(
                "probe.failed", group=self._ledger.group, error=f"{failure.error_class}: {failure.message}"
            )
            self._run.probe_failed = True
            raise ProbeFailed
        settled.verdicts = self._admitted(conn, failing, verdicts, settled.works)

    @staticmethod
    def _verdict(failing: Failing, work: Work, *, stack: bool = True) -> Verdict:
        outcome = work.outcome
        assert outcome is not None and outcome.error is not None and outcome.stage is not None
        failure = failure_of(outcome.error, outcome.stage, stack=stack)
        decided: Retry | Dead = failing.policy.decide(
            failure.kind,
            work.attempt,
            _age_s(work),
            random.random(),
            retry_after=failure.retry_after,
            over_budget=failure.kind in ("failure", "unavailable") and not failing.health.may_retry(),
        )
        return Verdict(work, failure, decided if isinstance(decided, Retry) else None)

    @staticmethod
    def _admitted(
        conn: HandlerConnection, failing: Failing, verdicts: list[Verdict], works: Sequence[Work]
    ) -> list[Verdict]:
        """Of deaths in a row that a bad deploy may be to blame for, only so many: then the group halts."""
        faults = [v for v in verdicts if v.retry is None and v.failure.deploy_fault]
        if not faults:
            return verdicts
        if failing.health.halted:
            raise GroupHalted
        broken = failing.health.streak_broken() or any(work.outcome is DONE for work in works)
        streak = failing.parking.streak(conn, broken=broken)
        most = failing.policy.settings.halt_failures
        if broken:
            return verdicts
        if streak >= most:
            failing.health.halt(f"{streak} events of different keys in a row failed for good")
            raise GroupHalted
        refused = faults[most - streak :]
        for verdict in refused:
            verdict.work.outcome = UNRUN
        return [verdict for verdict in verdicts if verdict not in refused]

    def _write_down(
        self,
        conn: HandlerConnection,
        failing: Failing,
        works: list[Work],
        settled: Settled,
        emitted: Sequence[Prepared],
    ) -> Any:
        """Parked rows and letters, emits, and live heads where the lowest row may have changed. Returns what `bury`
        does, None where nothing died."""
        parking = failing.parking
        verdicts = settled.verdicts
        dead = [verdict for verdict in verdicts if verdict.retry is None]
        stays = {v.work.lane for v in verdicts if v.retry is not None or failing.holds_dead}
        fresh = {parking.lane_of(verdict.work) for verdict in verdicts if verdict.work.row is None}
        gone = [work for work in works if work.row is not None and work.finished]
        followers = [
            work
            for work in works
            if work.row is None and (work.outcome is PARKED or (work.outcome is UNRUN and work.lane in stays))
        ]
        if fresh:
            parking.lock(conn, fresh)
        parking.park(conn, verdicts)
        parking.unpark(conn, gone)
        parking.follow(conn, followers)
        moved = [*gone, *(verdict.work for verdict in verdicts)]
        if moved:
            keys = {work.record.key for work in moved} | {event.key for event in emitted}
            conn.execute(query("lock_keys"), {"keys": list(keys)})
        letters = parking.bury(conn, dead) if dead else None
        self._outbox.write(conn, emitted)
        parking.leave_live_heads(conn, {parking.lane_of(work) for work in moved})
        settled.outcomes = [(work, PARKED) for work in followers]
        settled.outcomes += [(v.work, DEAD if v.retry is None else PARKED) for v in verdicts]
        return letters

    def _log(self, verdict: Verdict, letter: int | None = None) -> None:
        work, failure, retry = verdict.work, verdict.failure, verdict.retry
        log.log(
            40 if retry is None else 30,
            "event.dead" if retry is None else "event.failed",
            group=self._ledger.group,
            **work.named,
            stage=failure.stage,
            kind=dead_kind(failure) if retry is None else failure.kind,
            error=f"{failure.error_class}: {failure.message}",
            stack=failure.stack if failure.stage == "handler" else None,
            **({} if retry is None else {"again_in_seconds": round(retry.delay_s, 1)}),
            **({} if letter is None else {"hint": f"stream dlq show {letter}"}),
        )


def _behind_the_last_success(works: Sequence[Work]) -> set[int]:
    """What failed before a success says nothing about what it needs being there now."""
    behind: set[int] = set()
    for work in reversed(works):
        if work.outcome is DONE:
            break
        behind.add(id(work))
    return behind


def _age_s(work: Work) -> float:
    """Seconds since it first failed."""
    if work.row is not None:
        return work.row.age_s
    return 0.0 if work.first is None else time.monotonic() - work.first.at


def _tried_at_last(work: Work) -> bool:
    """Of a range run again: maybe it was given up in an earlier epoch."""
    return work.epoch > 0 and work.claimed and (work.finished or work.failed)


def _moves(work: Work) -> bool:
    """Whether parked rows come or go because of it."""
    outcome = work.outcome
    return work.row is not None or (outcome is not None and outcome.kind in ("failed", "parked"))
