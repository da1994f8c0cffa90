"""Control: what all processes of a group hold to together. A thread of its own, beside the loop.

It reads once a second what holds the group (halted, paused, breaker open), and writes down what its own process
found out (health.py); so no run of records and no pass of the loop ever waits for it. While the group is held it also
asks for the group's one probe at a time, and while it runs it publishes again what its key waits for in vain.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from stream import database
from stream.config import RetrySettings
from stream.database import Connection, query
from stream.health import Health
from stream.offsets import Partition
from stream.policy import Hold, by_an_operator, winner

log = structlog.get_logger("stream.control")

TICK_S = 1.0
QUIET_TICK_S = 0.2  # at least, while nothing holds the group: each look costs about a millisecond


@dataclass(frozen=True, slots=True)
class Standing:
    """What holds the group, by what the database said last: reasons, and which of them wins (`hold`). `recess`: the
    rewind that the group's processes make way for. `paced`: the one whose `rate` holds."""

    halted: str | None = None
    paused: str | None = None
    open: str | None = None
    streak: bool = False  # something died that a success would end a streak with
    hold: Hold | None = None
    recess: int | None = None
    paced: int | None = None
    rate: float | None = None


class Control:
    """One group's, in one process. `hold`, `take_probe` and `probed` are for the loop; they never block."""

    def __init__(
        self,
        database_url: str,
        group: str,
        worker: str,
        health: Health,
        settings: RetrySettings,
        progress: Callable[[], str | None] = lambda: None,
        committed: Callable[[], Mapping[Partition, int]] = dict,
    ) -> None:
        self.standing = Standing()
        self.recovered_at: float | None = None  # monotonic: when the breaker was last seen to close
        self.probe_failures = 0
        self._url = database_url
        self._group = group
        self._worker = worker
        self._health = health
        self._settings = settings
        self._progress = progress
        self._committed = committed
        self._said: str | None = None  # of the progress, in the database
        self._tick_s = max(0.01, min(TICK_S, settings.probe_first_s / 2))
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._connection: Connection | None = None  # opened by `start`, for the thread
        self._probe_wanted = False
        self._probe_granted = False
        self._recovered = False  # a probe succeeded, not yet written down
        self._probe_failed = False
        self._to_open: str | None = None  # reasons not yet written down
        self._to_halt: str | None = None
        self._successes = 0
        self._nudge_every_s = settings.nudge_first_s / 4
        self._nudge_at = time.monotonic() + self._nudge_every_s
        self._thread = threading.Thread(target=self._run, name=f"{worker}-control", daemon=True)

    def start(self) -> None:
        """Be there for all to see, and read what holds; then go on in a thread. Raises Unreachable.

        In this order: a rewind that does not see this process yet is seen by it.
        """
        connection = self._enter()
        try:
            self._read(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5)

    # -- for the loop -------------------------------------------------------------------------------------------

    @property
    def hold(self) -> Hold | None:
        """What holds the group now. What this process has just found out holds before it is written down."""
        if self._health.halt_wish is not None or self._to_halt is not None:
            return "halted"
        if self.standing.hold is None and (self._health.open_wish is not None or self._to_open is not None):
            return "breaker open"
        return self.standing.hold

    @property
    def reason(self) -> str | None:
        """Why, in words."""
        standing = self.standing
        return self._to_halt or standing.halted or standing.paused or self._to_open or standing.open

    def take_probe(self) -> bool:
        """Whether this process may try one event now; without an answer yet, asks for it."""
        if self._probe_granted:
            self._probe_granted = False
            return True
        if not self._probe_wanted:
            self._probe_wanted = True
            self._wake.set()
        return False

    def probed(self, succeeded: bool, failed: bool) -> None:
        """What became of the probe: it succeeded, or failed, or said nothing about the cause."""
        if succeeded:
            self._recovered = True
        elif failed:
            self._probe_failed = True
        self._wake.set()

    # -- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        connection, self._connection = self._connection, None
        while not self._stopping.is_set():
            try:
                connection = connection or self._enter()
                self._tick(connection)
            except Exception as error:  # noqa: BLE001  # without this thread the group would know of no hold
                log.warning("control.waiting", group=self._group, error=f"{type(error).__name__}: {error}")
                if connection is not None:
                    connection.close()
                connection = None
                self._stopping.wait(self._tick_s)
            held = self.standing.hold is not None or self.hold is not None
            self._wake.wait(self._tick_s if held else max(self._tick_s, QUIET_TICK_S))
            self._wake.clear()
        if connection is not None:
            connection.close()

    def _tick(self, connection: Connection) -> None:
        self._write_wishes(connection)
        self._write_probe(connection)
        self._end_streak(connection)
        self._read(connection)
        hold = self.standing.hold
        if hold in ("halted", "breaker open"):
            if self._probe_wanted and not self._probe_granted and self._try(connection, "take_probe"):
                self._probe_wanted, self._probe_granted = False, True
        else:
            self._probe_wanted = self._probe_granted = False
        self._write_progress(connection)
        self._pass_moves(connection)
        if hold is None and time.monotonic() >= self._nudge_at:
            self._nudge(connection)

    def _write_wishes(self, connection: Connection) -> None:
        to_open, to_halt = self._health.take_wishes()
        self._to_open, self._to_halt = self._to_open or to_open, self._to_halt or to_halt
        if self._to_halt is not None:
            self._write(connection, "halt_group", reason=self._to_halt, probe_s=self._settings.halt_probe_s)
        if self._to_open is not None:
            self._write(
                connection, "open_breaker", reason=self._to_open, probe_s=self._settings.probe_first_s
            )

    def _write_probe(self, connection: Connection) -> None:
        if self._recovered:
            self._write(connection, "recovered")
            self._recovered = self._probe_failed = False
            self.probe_failures = 0
        elif self._probe_failed:
            self._write(connection, "probe_failed", most_s=self._settings.probe_most_s)
            self._probe_failed = False
            self.probe_failures += 1

    def _end_streak(self, connection: Connection) -> None:
        """Deaths in a row are in a row only while no process of the group succeeds."""
        successes = self._health.successes
        if successes != self._successes and self.standing.streak:
            self._write(connection, "end_streak")
        self._successes = successes

    def _read(self, connection: Connection) -> None:
        row = connection.execute(query("standing"), {"group": self._group}).fetchone()
        before, standing = self.standing, Standing()
        if row is not None:
            halted, reason, paused, pause_reason, is_open, breaker_reason, streak, recess, paced, rate = row
            standing = Standing(
                (reason or "halted") if halted else None,
                by_an_operator(pause_reason) if paused else None,
                (breaker_reason or "open") if is_open else None,
                streak,
                winner(halted=halted, paused=bool(paused), breaker_open=is_open),
                recess,
                paced,
                rate,
            )
        self.standing = standing
        self._health.halted = standing.halted is not None
        self._to_open = self._to_halt = None  # written down, and read back
        if before.open is not None and standing.open is None:
            self.recovered_at = time.monotonic()
        if before.hold is not None and standing.hold is None:
            self._health.start_over()
        self._say(before)

    def _say(self, before: Standing) -> None:
        standing = self.standing
        if standing.hold == before.hold:
            return
        if standing.hold is None:
            log.warning("group.goes_on", group=self._group, was=before.hold)
            return
        meaning = "one event is tried now and then; a success lets the group go on"
        log.error(
            "group.held",
            group=self._group,
            hold=standing.hold,
            reason=self.reason,
            meaning="nothing is started" if standing.hold == "paused" else meaning,
            hint=f"stream groups resume {self._group}",
        )

    def _write_progress(self, connection: Connection) -> None:
        progress = self._progress()
        if progress != self._said:
            self._write(connection, "worker_progress", worker=self._worker, progress=progress)
            self._said = progress

    def _pass_moves(self, connection: Connection) -> None:
        """A rewind's rate ends once what runs again is behind all of the group's processes."""
        if self.standing.paced is not None:
            committed = self._committed()
            self._write(
                connection,
                "pass_moves",
                rewind=self.standing.paced,
                topics=[topic for topic, _ in committed],
                partitions=[number for _, number in committed],
                offsets=list(committed.values()),
            )

    def _nudge(self, connection: Connection) -> None:
        self._nudge_at = time.monotonic() + self._nudge_every_s
        settings = self._settings
        arguments = {"group": self._group, "first_s": settings.nudge_first_s, "most_s": settings.nudge_most_s}
        row = connection.execute(query("nudge"), arguments).fetchone()
        if row is not None and row[0]:
            log.warning(
                "retries.overdue", group=self._group, keys=row[0], meaning="their records are published again"
            )

    def _write(self, connection: Connection, name: str, **values: object) -> None:
        connection.execute(query(name), {"group": self._group, **values})

    def _try(self, connection: Connection, name: str) -> bool:
        return connection.execute(query(name), {"group": self._group}).fetchone() is not None

    def _enter(self) -> Connection:
        """The connection that says, as long as it lives, that this process is there."""
        connection = self._connect()
        try:
            self._write(connection, "enter_group", worker=self._worker)
        except BaseException:
            connection.close()
            raise
        self._said = None
        return connection

    def _connect(self) -> Connection:
        return database.connect(
            self._url,
            application_name=f"stream-{self._group}-control",
            autocommit=True,
            settings={"statement_timeout": "10s", "lock_timeout": "5s"},
        )
