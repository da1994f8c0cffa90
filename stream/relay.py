"""Relay: outbox rows to topics. A pass is a list of steps; read `run_once` first.

What makes it safe, whatever dies when:
- A row is deleted after the broker acknowledged it, and only then. A crash in between repeats it, same event id.
- Of one key at most one row is un-acknowledged (publisher.py), and every read sees, in one snapshot, all
  unpublished rows of a shard from its first on. There is no cursor over ids: a lower id may commit later.
- All of it runs on the session that holds the shards (shards.py). Lost session: forget everything, begin again.
- One topic never waits for another: each has its producer and its own rows in memory.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
import structlog
from psycopg import errors as pg

from stream.config import Config
from stream.database import LOCK_APPEND, query
from stream.errors import Unreachable
from stream.failpoints import failpoint
from stream.floors import SHARDS, Floors, raised
from stream.project import Project
from stream.publisher import Publisher, Row
from stream.shards import ShardSession

log = structlog.get_logger("stream.relay")

ROWS_A_SHARD = 64  # read at once of one topic; doubled while a shard comes back full
MOST_ROWS_A_SHARD = 2048
MOST_ROWS_A_READ = 6000
MOST_BYTES_A_READ = 16 * 1024 * 1024
PROMOTED_AT_ONCE = 2000
SERVE_S = 0.05  # one pass waits this long for acknowledgements, then looks at the other topics again
LOOK_AT_LOCKS_EVERY_S = 0.1
DISCOVER_TOPICS_EVERY_S = 1.0
OVERDUE_S = 0.5  # a key this late is waited for
WAIT_FOR_A_KEY_EVERY_S = 0.5
BUSY_S = 0.1  # after work, look again every millisecond for so long
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.02
LONGEST_RECONNECT_S = 5.0


@dataclass
class Pass:
    """What one pass did, in rows."""

    read: int = 0
    published: int = 0
    rejected: int = 0
    promoted: int = 0
    shards_changed: bool = False
    pending: int = 0

    @property
    def worked(self) -> bool:
        return bool(self.read or self.published or self.rejected or self.promoted)


@dataclass
class _View:
    """What this relay believes about the table; forgotten with the session."""

    floors: Floors = field(default_factory=Floors)
    of_topic: dict[str, list[int]] = field(default_factory=dict)
    limits: dict[tuple[str, int], int] = field(default_factory=dict)
    quiet_at: int | None = None  # the last id when everything up to it was seen to be gone
    looked_at_locks: float = 0.0
    next_discovery: float = 0.0
    blocked: dict[int, float] = field(default_factory=dict)  # lock number -> blocked since, of due keys
    waited_for_a_key: float = 0.0


class Relay:
    """Publishes the outbox of one database; run as many as you like. One thread; `stop` may be called from any."""

    def __init__(self, config: Config, project: Project) -> None:
        self._config = config
        self._codec = project.codec
        self._session: ShardSession | None = None
        self._publishers = {topic: Publisher(config, topic, project.codec) for topic in project.topics.topics}
        self._view = _View()
        self._stopping = False
        self._sick: dict[str, str] = {}
        self._reconnect_s = 0.1

    def run(self) -> None:
        """Until `stop`, through outages of broker and database; then drains for at most 20 s."""
        last_work = time.monotonic()
        pause = SHORTEST_PAUSE_S
        while not self._stopping:
            done = self._run_through_outage()
            now = time.monotonic()
            if done is not None and done.worked:
                last_work, pause = now, SHORTEST_PAUSE_S
                continue
            if now - last_work > BUSY_S:
                pause = min(pause * 1.5, LONGEST_PAUSE_S)
            time.sleep(pause)
        self.drain(20.0)

    def stop(self) -> None:
        self._stopping = True

    def run_until_empty(self) -> tuple[int, int, dict[str, str]]:
        """Until nothing is publishable or due: rows published, rows rejected, and sick topics with their reasons.

        Raises psycopg.Error or Unreachable where the database is lost.
        """
        published = rejected = quiet = 0
        while not self._stopping and quiet < 2:
            done = self.run_once()
            published, rejected = published + done.published, rejected + done.rejected
            stuck = bool(done.pending) and all(p.sick for p in self._publishers.values() if p.known)
            shards_missing = len(self._opened().owned) < SHARDS and not done.shards_changed
            quiet = (
                quiet + 1
                if stuck or (not done.worked and not done.pending and self._view.quiet_at is not None)
                else 0
            )
            if not done.worked:
                self._pause(0.01 if not shards_missing else 0.1)
        self.drain(0.0)
        return published, rejected, dict(self._sick)

    def run_once(self) -> Pass:
        """One pass. Raises psycopg.Error or Unreachable where the database is lost: the view is forgotten then."""
        done = Pass()
        session = self._opened()
        done.shards_changed = self._refresh_shards(session)
        last_id, due = self._probe(session)
        if due:
            done.promoted = self._promote(session)
        if due or last_id != self._view.quiet_at:
            done.read = self._read(session, last_id)
        self._serve()
        done.published, done.rejected = self._settle(session)
        self._report_sick(session)
        done.pending = sum(len(publisher.known) for publisher in self._publishers.values())
        return done

    def drain(self, seconds: float) -> None:
        """Wait for what is in flight, settle it, let the shards go. Rows not sent yet stay in the table."""
        deadline = time.monotonic() + seconds
        session = self._session
        if session is None:
            return
        try:
            while time.monotonic() < deadline and not all(
                p.idle for p in self._publishers.values() if p.sick is None
            ):
                self._serve()
                self._settle(session)
                session.refresh(lambda shard: True)
        except psycopg.Error as error:
            log.warning("relay.drain_cut_short", reason=str(error))
        self._forget()

    # Steps of a pass.

    def _opened(self) -> ShardSession:
        if self._session is None:
            self._session = ShardSession.open(self._config.database_url)
            log.info("relay.connected")
        return self._session

    def _refresh_shards(self, session: ShardSession) -> bool:
        changed = session.refresh(lambda shard: any(p.busy(shard) for p in self._publishers.values()))
        if changed:
            self._view.quiet_at = None
            log.info("relay.shards", owned=len(session.owned), of=SHARDS)
        return changed

    def _probe(self, session: ShardSession) -> tuple[int, bool]:
        """The last id taken, and whether rows are due. The only query of an idle pass."""
        cursor = session.connection.execute(query("probe"), {"shards": list(session.owned)})
        [(last_value, is_called, due)] = cursor.fetchall()
        return (last_value if is_called else 0), due

    def _promote(self, session: ShardSession) -> int:
        """Due rows into the outbox. Keys whose append lock is taken are tried again; long overdue ones waited for."""
        view, now = self._view, time.monotonic()
        avoid = list(view.blocked)
        cursor = session.connection.execute(
            "select * from stream.promote(%s, %s, %s)", [list(session.owned), avoid, PROMOTED_AT_ONCE]
        )
        [(moved, blocked)] = cursor.fetchall()
        if not moved:
            # Only blocked keys are due: try them again, all together, at the next pass.
            view.blocked = {
                number: since for number, since in view.blocked.items() if now - since > OVERDUE_S
            }
        for number in blocked:
            view.blocked.setdefault(number, now)
        overdue = [number for number, since in view.blocked.items() if now - since > OVERDUE_S]
        if overdue and now - view.waited_for_a_key > WAIT_FOR_A_KEY_EVERY_S:
            moved += self._wait_for_key(session, random.choice(overdue))
        if moved:
            failpoint("relay.promoted")
        return int(moved)

    def _wait_for_key(self, session: ShardSession, number: int) -> int:
        """Take one busy key's lock by waiting, holding no other: trying alone starves, waiting for all stops the relay."""
        try:
            cursor = session.connection.execute(
                "select stream.promote_waiting(%s, %s, %s)", [list(session.owned), number, PROMOTED_AT_ONCE]
            )
        except pg.LockNotAvailable:
            self._view.waited_for_a_key = time.monotonic()
            return 0
        del self._view.blocked[number]
        [(moved,)] = cursor.fetchall()
        return int(moved)

    def _read(self, session: ShardSession, last_id: int) -> int:
        """The first rows of every owned shard of every topic that wants some, in one snapshot."""
        view = self._view
        self._look_at_locks(session, last_id)
        self._discover_topics(session)
        topics = list(self._publishers)
        settled = list(view.floors.settled)
        all_settled = view.floors.all_settled(last_id, session.owned)
        wanting = [topic for topic in topics if self._publishers[topic].wants_rows()]
        known = [id for topic in wanting for id in self._publishers[topic].known]
        queued = [pair for topic in wanting for pair in self._publishers[topic].queued()]
        wanted = [(topic, shard) for topic in wanting for shard in session.owned]
        if not wanted:
            return 0
        limits = [view.limits.get(pair, ROWS_A_SHARD) for pair in wanted]
        too_many = max(sum(limits) / MOST_ROWS_A_READ, 1.0)
        cursor = session.connection.execute(
            query("read_outbox"),
            {
                "topics": [topic for topic, _ in wanted],
                "shards": [shard for _, shard in wanted],
                "floors": [self._floor(topic)[shard] for topic, shard in wanted],
                "limits": [max(int(limit / too_many), 1) for limit in limits],
                "known": known,
                "queued": [key for key, _ in queued],
                "bytes": MOST_BYTES_A_READ,
            },
            # `<> all($1)` is hashed for a constant only: a prepared plan is ten times slower with ids in memory.
            prepare=False if known or queued else None,
            binary=True,
        )
        fetched = cursor.fetchall()
        failpoint("relay.read")
        rows = [Row(*columns[:-1]) for columns in fetched]
        complete = not fetched or fetched[0][-1] == len(fetched)
        if complete:
            self._raise_floors(wanted, rows, settled, {shard for _, shard in queued})
        if not fetched and not known and all_settled and len(wanting) == len(topics):
            view.quiet_at = last_id if not self._discover_topics(session, now_please=True) else None
        self._offer(wanted, rows)
        if rows:
            failpoint("relay.produced")
        return len(rows)

    def _serve(self) -> None:
        """Delivery reports, until all is acknowledged that still moves, or it is time to look at the table again."""
        deadline = time.monotonic() + SERVE_S
        moving = list(self._publishers.values())
        while moving:
            wait = 0.0005 if len(moving) == 1 else 0.0
            moving = [publisher for publisher in moving if publisher.serve(wait)]
            if time.monotonic() > deadline:
                return
            if len(moving) > 1:
                moving[0].serve(0.0005)

    def _settle(self, session: ShardSession) -> tuple[int, int]:
        """Delete exactly what was acknowledged; set the rejected rows aside."""
        acknowledged = [row for publisher in self._publishers.values() for row in publisher.acknowledged]
        rejected = [entry for publisher in self._publishers.values() for entry in publisher.rejected]
        if acknowledged:
            failpoint("relay.acknowledged")
            session.connection.execute(query("delete_outbox"), _columns(acknowledged), binary=True)
            failpoint("relay.deleted")
        if rejected:
            failpoint("relay.rejecting")
            columns = _columns([row for row, _, _ in rejected])
            columns["reasons"] = [reason for _, reason, _ in rejected]
            columns["errors"] = [error[:1024] for _, _, error in rejected]
            session.connection.execute(query("reject_outbox"), columns)
        if acknowledged or rejected:
            for publisher in self._publishers.values():
                publisher.settled()
        return len(acknowledged), len(rejected)

    def _report_sick(self, session: ShardSession) -> None:
        """Log and record each topic that turned sick or well; `stream outbox status` shows them."""
        sick = {topic: p.sick for topic, p in self._publishers.items() if p.sick is not None and p.known}
        for topic in sick.keys() - self._sick.keys():
            log.error("relay.topic_sick", topic=topic, reason=sick[topic], hint="stream outbox status")
            session.connection.execute(
                "insert into stream.sick_topic values (%s, %s, now())"
                " on conflict (topic) do update set reason = excluded.reason",
                [topic, sick[topic]],
            )
        for topic in self._sick.keys() - sick.keys():
            log.info("relay.topic_well", topic=topic)
            session.connection.execute("delete from stream.sick_topic where topic = %s", [topic])
        self._sick = sick

    # What the steps are made of.

    def _run_through_outage(self) -> Pass | None:
        try:
            done = self.run_once()
            self._reconnect_s = 0.1
            return done
        except (psycopg.Error, Unreachable) as error:
            log.warning(
                "relay.database_lost", reason=str(error).strip(), again_in_s=round(self._reconnect_s, 1)
            )
            self._forget()
            self._pause(self._reconnect_s * random.uniform(0.5, 1.0))
            self._reconnect_s = min(self._reconnect_s * 2, LONGEST_RECONNECT_S)
            return None

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.05)

    def _forget(self) -> None:
        """The shards are lost, or given back: nothing known about them is true any more."""
        if self._session is not None:
            self._session.close()
        self._session = None
        self._view = _View()
        self._sick = {}
        for publisher in self._publishers.values():
            publisher.forget()

    def _discover_topics(self, session: ShardSession, *, now_please: bool = False) -> bool:
        """Look for topics with rows that nobody declared (retries, another project): rarely, it walks dead rows."""
        view, begun = self._view, time.monotonic()
        if begun < view.next_discovery and not now_please:
            return False
        found = {
            topic for (topic,) in session.connection.execute(query("outbox_topics"))
        } - self._publishers.keys()
        for topic in found:
            self._publishers[topic] = Publisher(self._config, topic, self._codec)
        now = time.monotonic()
        view.next_discovery = now + max(DISCOVER_TOPICS_EVERY_S, 20 * (now - begun))
        return bool(found)

    def _floor(self, topic: str) -> list[int]:
        return self._view.of_topic.setdefault(topic, [0] * SHARDS)

    def _look_at_locks(self, session: ShardSession, last_id: int) -> None:
        now = time.monotonic()
        if now - self._view.looked_at_locks < LOOK_AT_LOCKS_EVERY_S:
            return
        self._view.looked_at_locks = now
        holders = session.connection.execute(
            query("append_lock_holders"), {"append_class": LOCK_APPEND}
        ).fetchall()
        self._view.floors.observe(last_id, holders)

    def _raise_floors(
        self, wanted: list[tuple[str, int]], rows: list[Row], settled: list[int], queued_shards: set[int]
    ) -> None:
        """After a complete read. Rows in memory count as seen; a shard of which keys were left out stays as it is."""
        lowest: dict[tuple[str, int], int] = {}
        for topic in {topic for topic, _ in wanted}:
            for shard, id in self._publishers[topic].lowest().items():
                lowest[topic, shard] = id
        for row in rows:
            pair = (row.topic, row.shard)
            lowest[pair] = min(row.id, lowest.get(pair, row.id))
        for topic, shard in wanted:
            if shard not in queued_shards:
                floor = self._floor(topic)
                floor[shard] = raised(floor[shard], settled[shard], lowest.get((topic, shard)))

    def _offer(self, wanted: list[tuple[str, int]], rows: list[Row]) -> None:
        by_topic: dict[str, list[Row]] = {}
        counts: dict[tuple[str, int], int] = {}
        for row in rows:
            by_topic.setdefault(row.topic, []).append(row)
            counts[row.topic, row.shard] = counts.get((row.topic, row.shard), 0) + 1
        for pair in wanted:
            limit = self._view.limits.get(pair, ROWS_A_SHARD)
            full = counts.get(pair, 0) >= min(limit, ROWS_A_SHARD)
            self._view.limits[pair] = (
                min(limit * 2, MOST_ROWS_A_SHARD) if full else max(limit // 2, ROWS_A_SHARD)
            )
        for topic, offered in by_topic.items():
            self._publishers[topic].offer(offered)


def _columns(rows: list[Row]) -> dict[str, Any]:
    return {
        "topics": [row.topic for row in rows],
        "shards": [row.shard for row in rows],
        "ids": [row.id for row in rows],
    }
