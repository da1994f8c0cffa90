"""Suspects: records that may have killed the process that last had them.

A partition whose owner died without releasing it (stream.assignment) is suspect as far as that owner can have come:
each of its records is tried alone in the process, its deaths written down before the try and cleared after it
(stream.suspect). One that is blamed for the third death is not tried again: it dies of kind `crash`. A partition
counts as released again only once its suspects are behind us. Normal running pays nothing for this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from stream.connection import HandlerConnection
from stream.database import query
from stream.groups import ConsumerGroup
from stream.lanes import MOST_POSTPONED
from stream.ledger import Ledger, Taken
from stream.offsets import Partition, Progress
from stream.outcomes import DUPLICATE
from stream.policy import ProcessDied
from stream.work import Work

IDLE_S = 3.0
TOGETHER = 20  # suspects in one run: alone each, but nothing else may start meanwhile


def window(group: ConsumerGroup) -> int:
    """How many records of a partition its owner can have had in hand, or a little more."""
    return MOST_POSTPONED + max(100, 2 * group.batch, 4 * group.concurrency)


class Suspects:
    """Which partitions still have suspects. Owned by the processor's thread."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._window = window(group)
        self._ends: dict[Partition, int] = {}
        self._left: dict[Partition, int] = {}
        self._idle_since: float | None = None

    def __bool__(self) -> bool:
        return bool(self._ends)

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._ends

    def watch(self, ends: Mapping[Partition, int]) -> None:
        """These were not released; `ends` of their logs now."""
        for partition, end in ends.items():
            self._ends[partition] = end
            self._left[partition] = self._window
            self._idle_since = None

    def give_up_waiting(self, now: float) -> None:
        """Nothing of them is there to be tried. Their ends may be no records but a transaction's markers, which
        nobody is ever given; so after a while they count as passed."""
        if self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since > IDLE_S:
            self.forget(list(self._ends))

    def tried(self, partition: Partition) -> None:
        """One record of it was tried alone (a duplicate was not)."""
        self._idle_since = None
        if partition in self._left:
            self._left[partition] -= 1

    def forget(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._ends.pop(partition, None)
            self._left.pop(partition, None)

    def passed(self, progress: Progress) -> list[Partition]:
        """Drops, and returns, the partitions that have none any more."""
        done = [
            partition
            for partition, end in self._ends.items()
            if self._left[partition] <= 0 or progress.finished_before(partition) >= end
        ]
        self.forget(done)
        return done


class Deaths:
    """The deaths that records are blamed for, as one worker writes them. Each is blamed once in a run."""

    def __init__(self, group: str, crashes: int) -> None:
        self._group = group
        self._most = crashes
        self._blamed: dict[object, tuple[int, dict[str, object]]] = {}  # by place: deaths, and its row

    @property
    def blamed(self) -> bool:
        """Whether anything is blamed now."""
        return bool(self._blamed)

    def pardon_all(self, conn: HandlerConnection) -> None:
        """Nothing of it has killed anybody."""
        for place, (_, row) in list(self._blamed.items()):
            conn.execute(query("pardon"), row)
            del self._blamed[place]

    @staticmethod
    def sift(conn: HandlerConnection, ledger: Ledger, works: Sequence[Work]) -> None:
        """Take out what was applied before: most of what a dead process read again."""
        found = set(ledger.applied(conn, works))
        for work in works:
            if (work.id, work.epoch) in found:
                work.outcome = DUPLICATE

    def alone(self, conn: HandlerConnection, work: Work, act: Callable[[], bool]) -> None:
        """Try one record, its deaths written down first; or let it fail of them. `act` says whether it was tried: what
        somebody else holds has killed nobody."""
        place: dict[str, object] = {
            "group": self._group,
            "topic": work.record.topic,
            "partition": work.record.partition,
            "offset": work.record.offset,
        }
        if work.place not in self._blamed:
            row = conn.execute(query("blame"), place).fetchone()
            self._blamed[work.place] = (0 if row is None else int(row[0]), place)
        deaths, _ = self._blamed[work.place]
        if deaths >= self._most:
            work.fail(ProcessDied(deaths), "handler")
        tried = False
        try:
            tried = act()
        except Taken:
            self._acquit(conn, work, "pardon", place)
            raise
        self._acquit(conn, work, "clear_blame" if tried else "pardon", place)

    def _acquit(self, conn: HandlerConnection, work: Work, how: str, place: dict[str, object]) -> None:
        conn.execute(query(how), place)
        del self._blamed[work.place]
