"""Moving: a rewind is carried out. The group's members make way, its offsets are moved, and read back.

    strangers   a member that is no process of ours: refused, before anybody is disturbed
    ask         a row of stream.rewind; ours finish what they have, leave, and wait for its end (recess.py)
    resolve     the plan once more: nothing of the group moves any more, and this is what is done
    save        the old offsets, for undo
    move        one commit, which the broker takes whole, and only while the group has no members
    read back   and what follows from it is made true (reapplies.py); the row is ended: the members come back

Killed anywhere, this leaves the offsets all old or all new, and the members come back: they wait for as long as this
process holds the lock of its row, and no longer than `gives_up_at`. Nobody has to be told what is the broker's to
refuse: a member that knows of no rewind, or a command that was frozen until its members had come back.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psycopg

from stream import database, offsetfile, reapplies
from stream.config import Config
from stream.database import LOCK_REWIND, Connection, query
from stream.epochs import Range
from stream.errors import PartlyDone, Refused, StreamError, Unreachable
from stream.failpoints import failpoint
from stream.kafka import positions
from stream.kafka.consumer import CLIENT
from stream.kafka.membership import BrokerMember, members
from stream.kafka.reader import committed
from stream.operators import who, write_action
from stream.rewinds import Mode, RewindPlan
from stream.views import clock

LOOK_EVERY_S = 0.2
MARGIN_S = 60.0  # what comes after the waiting, and how long a frozen command is waited for
UNDO = ".stream/undo"  # in the project's folder


@dataclass(frozen=True, slots=True)
class CutOff:
    """A rewind whose command did not come to its end. `undo`: where it saved the old offsets, None: it did not come
    so far, and moved nothing."""

    id: int
    who: str
    asked_at: datetime
    undo: str | None


@dataclass(frozen=True, slots=True)
class Moved:
    """What was done. `undo`: the file with the old offsets; None where there were none."""

    plan: RewindPlan
    undo: Path | None


@dataclass(frozen=True)
class Moving:
    """One rewind of one group. `resolve` makes the plan, by what broker and database say at that moment; `tell` is
    told what is waited for. `wait_s`: how long members may take to make way. `rate`: events a second, or None."""

    config: Config
    connection: Connection
    group: str
    mode: Mode
    resolve: Callable[[], RewindPlan]
    wait_s: float
    rate: float | None = None
    reason: str | None = None
    tell: Callable[[str], None] = lambda _: None

    def run(self) -> Moved:
        """Move the offsets, and show that they are moved.

        Raises Refused, with nothing changed, where somebody stands in the way; PartlyDone where not all of it can be
        shown to be done; Unreachable.
        """
        self._refuse_strangers(members(self.config, self.group))
        with self._under_way() as rewind:
            failpoint("rewind.asked")
            self._await_recess(rewind)
            failpoint("rewind.away")
            self._settle()  # of one that was cut off
            self._refuse_twice(rewind)
            plan = self.resolve()
            undo = self._save(plan, rewind)
            failpoint("rewind.saved")
            self._plan(rewind, plan, undo)
            failpoint("rewind.planned")
            self._move(plan)
            failpoint("rewind.moved")
            self._read_back(plan, undo)
            if not self._settled_as_moved(rewind, plan):
                raise PartlyDone(
                    f"group {self.group!r}: its members came back before its offsets were moved",
                    hint=f"stream rewind --group {self.group} --to-current",
                )
            failpoint("rewind.settled")
            self._end(rewind, plan, undo)
            failpoint("rewind.ended")
        return Moved(plan, undo)

    # -- ask ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _under_way(self) -> Iterator[int]:
        """The row that members make way for, and the lock that says we are there. However this ends, so does the row;
        where it cannot be written, the lock falls with the session."""
        rewind = self._ask()
        result = "failed"
        try:
            yield rewind
        except Refused:
            result = "refused"
            raise
        except psycopg.OperationalError as error:
            raise database.unreachable(self.config.database_url, error) from None
        finally:
            with suppress(psycopg.Error):  # after `_end` there is nothing left to end
                self.connection.execute(query("end_rewind"), {"rewind": rewind, "result": result})
                self.connection.execute("select pg_advisory_unlock(%s, %s)", [LOCK_REWIND, rewind])

    def _ask(self) -> int:
        arguments = {
            "group": self.group,
            "mode": self.mode,
            "who": who(),
            "reason": self.reason,
            "rate": self.rate,
            "patience_s": self.wait_s + MARGIN_S,
        }
        with self.connection.transaction():
            close_cut_off(self.connection, self.group)
            row = self.connection.execute(query("begin_rewind"), arguments).fetchone()
            if row is None:
                raise Refused(
                    f"group {self.group!r} is being rewound by another command; nothing was changed",
                    hint=f"stream rewind --group {self.group} --to-current",
                )
            # Held before anybody sees the row.
            self.connection.execute("select pg_advisory_lock(%s, %s)", [LOCK_REWIND, row[0]])
            return int(row[0])

    # -- the members ------------------------------------------------------------------------------------------------

    def _await_recess(self, rewind: int) -> None:
        """Until all processes of the group have left it, and the broker knows of no member."""
        deadline = time.monotonic() + self.wait_s
        told = False
        while True:
            ours = self.connection.execute(
                query("making_way"), {"group": self.group, "rewind": rewind}
            ).fetchall()
            staying = [worker for worker, made_way in ours if not made_way]
            there = members(self.config, self.group)
            self._refuse_strangers(there)
            if not staying and not there:
                return
            if not told:
                told = True
                self.tell(f"{self.group}: waiting for {_counted(staying or there)} to make way")
            if time.monotonic() > deadline:
                names = ", ".join(staying) or ", ".join(map(str, there))
                raise Refused(
                    f"group {self.group!r}: not out of the way within {self.wait_s:g} s: {names:.500};"
                    " nothing was changed",
                    hint=f"stream groups describe {self.group}",
                )
            time.sleep(LOOK_EVERY_S)

    def _refuse_strangers(self, there: Sequence[BrokerMember]) -> None:
        """A killed process of ours is a member for some seconds more: that is waited for."""
        strangers = [
            member
            for member in there
            if not (member.client.startswith(CLIENT) and member.client.endswith(f"-{self.group}"))
        ]
        if strangers:
            raise Refused(
                f"group {self.group!r} has members that are no processes of this project:"
                f" {', '.join(map(str, strangers)):.500}; stop them first; nothing was changed",
                hint=f"stream groups describe {self.group}",
            )

    # -- the offsets --------------------------------------------------------------------------------------------------

    def _save(self, plan: RewindPlan, rewind: int) -> Path | None:
        """The old offsets as a file that `--from-file` takes: on the disk before anything is moved."""
        if not plan.olds:
            return None
        folder = self.config.project / UNDO
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = folder / f"{self.group}-{now}-{rewind}.csv"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(offsetfile.lines(plan.olds))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StreamError(
                f"the old offsets cannot be saved in {path}: {error.strerror}; nothing was changed"
            ) from None
        return path

    def _plan(self, rewind: int, plan: RewindPlan, undo: Path | None) -> None:
        """What is about to be done, so that it can be settled whatever becomes of this process."""
        arguments: dict[str, object] = {
            "rewind": rewind,
            "epoch": None,
            "undo": None if undo is None else str(undo),
            "topics": [move.topic for move in plan.moves],
            "partitions": [move.partition for move in plan.moves],
            "olds": [move.old for move in plan.moves],
            "news": [move.new for move in plan.moves],
            "uptos": [move.upto for move in plan.moves],
        }
        ranges = [Range(*m.place, m.new, m.end, m.upto) for m in plan.moves if m.records]
        with self.connection.transaction():
            if self.mode == "reapply" and ranges:
                arguments["epoch"] = reapplies.plan(
                    self.connection, self.group, ranges, who=who(), reason=self.reason
                )
            self.connection.execute(query("plan_rewind"), arguments)

    def _refuse_twice(self, rewind: int) -> None:
        """Who repeats a reapply that was cut off means the same one, and it may have gone through."""
        if self.mode != "reapply":
            return
        before = {"group": self.group, "rewind": rewind}
        for id, epoch in self.connection.execute(query("reapply_before"), before):
            raise Refused(
                f"group {self.group!r}: rewind {id}, which was cut off, did move the offsets, and its range runs again"
                f" as epoch {epoch}; nothing more was changed; once more would run all of it yet again",
                hint=f"stream groups describe {self.group}",
            )

    def _settled_as_moved(self, rewind: int, plan: RewindPlan) -> bool:
        """By us now; or by members that waited no longer, who may have found the old offsets."""
        self._settle()
        [(moved,)] = self.connection.execute(query("rewind_moved"), {"rewind": rewind})
        return bool(moved) or not plan.moves

    def _settle(self) -> None:
        reapplies.settle(self.connection, self.group, partial(committed, self.config, self.group))

    def _move(self, plan: RewindPlan) -> None:
        """In one commit. Where it fails and all offsets are as they were, it is as if nothing was done; else the
        answer was lost, and reading back tells."""
        if not plan.changes:
            return
        try:
            positions.move_offsets(self.config, self.group, plan.changes)
        except Refused:
            raise
        except StreamError:
            with suppress(Unreachable):
                found = committed(self.config, self.group)
                if all(found.get(move.place) == move.old for move in plan.moves):
                    raise

    def _read_back(self, plan: RewindPlan, undo: Path | None) -> None:
        back = (
            None
            if undo is None
            else f"stream rewind --group {self.group} --from-file {shlex.quote(str(undo))}"
        )
        try:
            found = committed(self.config, self.group)
        except Unreachable as error:
            raise PartlyDone(
                f"group {self.group!r}: whether the offsets were moved cannot be read back: {error.message}",
                hint=f"stream rewind --group {self.group} --to-current",
            ) from None
        wrong = [move for move in plan.moves if found.get(move.place) != move.new]
        if wrong:
            places = ", ".join(
                f"{m.topic}[{m.partition}] at {found.get(m.place)}, not {m.new}" for m in wrong
            )
            raise PartlyDone(
                f"group {self.group!r}: read back after the move, not all is where it should be: {places:.500}",
                hint=back,
            )

    def _end(self, rewind: int, plan: RewindPlan, undo: Path | None) -> None:
        parameters = {
            "mode": self.mode,
            "rate": self.rate,
            "records": plan.total,
            "skipped": plan.skipped,
            "undo": None if undo is None else str(undo),
            "moves": [
                {"topic": m.topic, "partition": m.partition, "old": m.old, "new": m.new} for m in plan.moves
            ],
        }
        try:
            with self.connection.transaction():
                self.connection.execute(query("end_rewind"), {"rewind": rewind, "result": "moved"})
                write_action(
                    self.connection, "rewind", self.group, "moved", parameters=parameters, reason=self.reason
                )
        except psycopg.OperationalError as error:
            raise PartlyDone(
                f"group {self.group!r}: the offsets were moved, but the database did not take it down:"
                f" {' '.join(str(error).split())}",
                hint=f"stream rewind --group {self.group} --to-current",
            ) from None


def is_there(config: Config, plan: RewindPlan) -> bool:
    """Whether there is nothing to move. A member may have read on, and not have committed it yet."""
    return not plan.changes and not members(config, plan.group)


def cut_off(connection: Connection, group: str) -> CutOff | None:
    """The group's last rewind, if its command is gone without having ended it."""
    row = connection.execute(query("open_rewind"), {"group": group}).fetchone()
    return None if row is None or row[4] else CutOff(*row[:4])


def close_cut_off(connection: Connection, group: str) -> CutOff | None:
    """The same; from now on it is known, and not told any more."""
    row = connection.execute(query("close_cut_off"), {"group": group}).fetchone()
    return None if row is None else CutOff(*row)


def said_of(found: CutOff) -> str:
    """What is known of it, in words."""
    began = f"rewind {found.id} by {found.who} of {clock(found.asked_at)} was cut off"
    if found.undo is None:
        return f"{began} before it moved anything"
    return f"{began}: the offsets are all as they were or all moved; as they were they stand in {found.undo}"


def _counted(members: Sequence[object]) -> str:
    return "1 member" if len(members) == 1 else f"{len(members)} members"
