"""Waking: what a record of the retry topic does. It carries nothing but a call: what runs are the parked rows of its
key, from the lowest, while they are due. So a doubled, early or late record burns nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import structlog

from stream.connection import HandlerConnection
from stream.events import Record, event_id_of
from stream.failpoints import failpoint
from stream.groups import ConsumerGroup
from stream.handling import Unplaced, blame
from stream.opening import Opening
from stream.parking import woken_lane
from stream.signals import event_fields
from stream.transaction import Transactions
from stream.work import Work, leave_behind

log = structlog.get_logger("stream.execution")


class Waking:
    """Runs parked rows in the transactions of one worker."""

    def __init__(self, group: ConsumerGroup, opening: Opening, transactions: Transactions) -> None:
        self._group = group
        self._opening = opening
        self._transactions = transactions

    def lanes_of(self, records: Sequence[Record]) -> list[int | None]:
        """The lane that each record wakes; None where it cannot be read: then it wakes nothing."""
        lanes = [woken_lane(self._group.name, record) for record in records]
        for record, lane in zip(records, lanes, strict=True):
            if lane is None:
                fields = event_fields(record, record.key, event_id_of(record), None, 0)
                log.warning("retry.unreadable", group=self._group.name, **fields)
        return lanes

    def run(
        self,
        lanes: list[int],
        taken: set[int],
        most: int | None = None,
        failed: Mapping[object, Work] | None = None,
    ) -> None:
        """Run what is due of these lanes, up to the group's `batch` rows together; lanes that are done leave the list.

        Those that are not to be had now leave it, too, for `taken`: they are to be woken again. What is left of a lane
        that is done has a record of its own on its way by then. Where it cannot be said which event failed, lane by
        lane and then row by row. `failed`: rows that are not to be tried any more.
        """
        failed = dict(failed or {})  # before, or in transactions that were undone; by place
        while lanes:
            limit = most or max(1, self._group.batch // len(lanes))
            works: list[Work] = []
            unplaced: BaseException | None = None
            try:
                held: set[int] = set()
                begin = partial(self._begin, works, list(lanes), held, limit, failed)
                if self._transactions.attempt(works, begin):
                    taken |= held
                    lanes.clear()
            except Unplaced as error:
                unplaced = error.reason
            # Not inside `except`: what fails below is no consequence of this.
            if unplaced is None:
                pass
            elif len(lanes) > 1:
                while lanes:
                    self.run([lanes[0]], taken)
                    lanes.pop(0)
                return
            elif len(works) > 1:
                most = 1
                continue
            else:
                blame(works, unplaced)
            failed |= {work.place: work for work in works if work.failed}

    def _begin(
        self,
        works: list[Work],
        lanes: list[int],
        held: set[int],
        limit: int,
        failed: Mapping[object, Work],
        conn: HandlerConnection,
    ) -> list[Work]:
        works.clear()
        held.clear()
        found, others = self._opening.woken(conn, lanes, limit)
        works += found
        held |= others
        failpoint("fail.woken")
        for work in works:
            before = failed.get(work.place)
            if before is not None and before.attempt == work.attempt and work.outcome is None:
                work.outcome = before.outcome
        leave_behind(works)
        return works
