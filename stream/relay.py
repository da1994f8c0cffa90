"""Relay: outbox rows to topics. A pass is a list of steps; read `run_once` first.

What makes it safe, whatever dies when:
- A row is deleted after the broker acknowledged it, and only then. A crash in between repeats it, same event id.
- Of one key at most one row is un-acknowledged (publisher.py), and every read sees, in one snapshot, all
  unpublished rows of a shard (unpublished.py).
- All of it runs on the session that holds the shards (shards.py). Lost session: forget everything, begin again.
- One topic never waits for another: each has its producer and its own rows in memory.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog

from stream.config import Config
from stream.database import int_array, query, text_array
from stream.errors import Unreachable
from stream.failpoints import failpoint
from stream.floors import SHARDS
from stream.meters import RelayMeter
from stream.project import Project
from stream.promotion import Promotion
from stream.publisher import Publisher
from stream.rows import Row
from stream.shards import ShardSession
from stream.unpublished import Unpublished
from stream.vitals import RelaySigns

log = structlog.get_logger("stream.relay")

SERVE_S = 0.05  # one pass waits this long for acknowledgements, then looks at the other topics again
ACKNOWLEDGED_S = 0.01  # the client waits no longer than until the first report
SHORTEST_WAIT_S = 0.001  # the client waits for whole milliseconds: less is a loop without a pause
REPORT_SICK_EVERY_S = 1.0
BUSY_S = 0.1  # after work, look again every millisecond for so long
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.02
LONGEST_RECONNECT_S = 5.0
DRAIN_S = 20.0


@dataclass
class Pass:
    """What one pass did, in rows; `due`: rows are due that could not be moved yet."""

    read: int = 0
    published: int = 0
    rejected: int = 0
    promoted: int = 0
    due: bool = False

    @property
    def worked(self) -> bool:
        return bool(self.read or self.published or self.rejected or self.promoted)


@dataclass
class Drained:
    """What a relay that ran until nothing was left did: rows by topic, and sick topics with their reasons."""

    published: int
    rejected: dict[str, int]
    sick: dict[str, str]


class Relay:
    """Publishes the outbox of one database; run as many as you like. One thread; `stop` and `signs` are for any."""

    def __init__(self, config: Config, project: Project) -> None:
        self._config = config
        self._codec = project.codec
        self._session: ShardSession | None = None
        self.publishers = {topic: Publisher(config, topic, project.codec) for topic in project.topics.topics}
        self._unpublished = Unpublished()
        self._promotion = Promotion()
        self._stopping = False
        self._sick: dict[str, str] = {}
        self._well: set[str] = set()
        self._next_report = 0.0
        self._reconnect_s = 0.1
        self._rejected: dict[str, int] = {}
        self.meter = RelayMeter(self.publishers)
        self._round_at = time.monotonic()

    def run(self) -> None:
        """Until `stop`, through outages of broker and database; then drains."""
        last_work = time.monotonic()
        pause = SHORTEST_PAUSE_S
        while not self._stopping:
            done = self._run_through_outage()
            now = self._round_at = time.monotonic()
            if done is not None and done.worked:
                last_work, pause = now, SHORTEST_PAUSE_S
                continue
            if now - last_work > BUSY_S:
                pause = min(pause * 1.5, LONGEST_PAUSE_S)
            time.sleep(pause)
        self.drain(DRAIN_S)

    def stop(self) -> None:
        self._stopping = True

    def signs(self) -> RelaySigns:
        """What is to be seen of it from outside; from any thread."""
        with_rows = {topic for topic, publisher in dict(self.publishers).items() if publisher.known}
        return RelaySigns(
            time.monotonic() - self._round_at,
            connected=self._session is not None,
            stopping=self._stopping,
            topics=len(with_rows),
            sick={topic: reason for topic, reason in self._sick.items() if topic in with_rows},
        )

    def run_until_empty(self) -> Drained:
        """Until nothing is publishable or due, here or at another relay. Sick topics are left.

        An event whose transaction is open is not waited for. Raises psycopg.Error or Unreachable where the
        database is lost.
        """
        self._rejected = {}
        published = quiet = 0
        while not self._stopping and quiet < 2:
            done = self.run_once()
            published += done.published
            quiet = quiet + 1 if not done.worked and self._nothing_left(done) else 0
            if not done.worked:
                self._pause(0.01 if len(self._opened().owned) == SHARDS else 0.1)
        drained = Drained(published, self._rejected, self._sick)
        self.drain(0.0)
        return drained

    def run_once(self) -> Pass:
        """One pass. Raises psycopg.Error or Unreachable where the database is lost."""
        done = Pass()
        session = self._opened()
        self._refresh_shards(session)
        last_id, done.due = self._probe(session)
        if done.due:
            done.promoted = self._promotion.promote(session)
        if done.promoted or not self._unpublished.is_quiet(last_id):
            done.read = self._read(session, last_id)
        self._serve()
        done.published, done.rejected = self._settle(session)
        self._report_sick(session)
        return done

    def drain(self, seconds: float) -> None:
        """Wait for what is in flight, settle it, let the shards go. Rows not sent yet stay in the table."""
        deadline = time.monotonic() + seconds
        session = self._session
        if session is None:
            return
        for publisher in self.publishers.values():
            publisher.withdraw()
        try:
            while time.monotonic() < deadline and not all(
                p.idle for p in self.publishers.values() if p.sick is None
            ):
                self._serve()
                self._settle(session)
                session.members()  # the session lives on while it is used
        except psycopg.Error as error:
            log.warning("relay.drain_cut_short", reason=str(error).strip())
        self._forget()

    # Steps of a pass.

    def _opened(self) -> ShardSession:
        if self._session is None:
            self._session = ShardSession.open(self._config.database_url)
            log.info("relay.connected")
        return self._session

    def _refresh_shards(self, session: ShardSession) -> None:
        if session.refresh(self._busy_shards, self._drop):
            self._unpublished.shards_changed()
            self._promotion.shards_changed()
            log.info("relay.shards", owned=len(session.owned), of=SHARDS)

    def _probe(self, session: ShardSession) -> tuple[int, bool]:
        """The last id taken, and whether rows are due. The only query of an idle pass."""
        arguments = {"shards": int_array(session.owned), "floor": self._promotion.floor}
        [(last_id, now_us, first_due_us)] = session.connection.execute(query("probe"), arguments).fetchall()
        self._promotion.learn(session, now_us, first_due_us)
        return last_id, first_due_us is not None

    def _read(self, session: ShardSession, last_id: int) -> int:
        """The first rows of every owned shard of every topic that wants some, in one snapshot."""
        by_topic, new_topics = self._unpublished.read(session, last_id, self.publishers)
        for topic in new_topics:
            self.publishers[topic] = Publisher(self._config, topic, self._codec)
        for topic, rows in by_topic.items():
            self.publishers[topic].offer(rows)
        if by_topic:
            failpoint("relay.produced")
        self._unpublished.look_at_locks(session, last_id)
        return sum(map(len, by_topic.values()))

    def _serve(self) -> None:
        """Delivery reports, until all is acknowledged that still moves, or it is time to look at the table again."""
        deadline = time.monotonic() + SERVE_S
        moving = list(self.publishers.values())
        while moving:
            wait = ACKNOWLEDGED_S if len(moving) == 1 else 0.0
            moving = [publisher for publisher in moving if publisher.serve(wait)]
            if time.monotonic() > deadline:
                return
            if len(moving) > 1:
                moving[0].serve(SHORTEST_WAIT_S)

    def _settle(self, session: ShardSession) -> tuple[int, int]:
        """Delete exactly what was acknowledged; set the rejected rows aside."""
        acknowledged = [row for publisher in self.publishers.values() for row in publisher.acknowledged]
        rejected = [entry for publisher in self.publishers.values() for entry in publisher.rejected]
        if acknowledged:
            failpoint("relay.acknowledged")
            session.connection.execute(query("delete_outbox"), _columns(acknowledged))
            failpoint("relay.deleted")
            self.meter.published.update([row.topic for row in acknowledged])
        if rejected:
            failpoint("relay.rejecting")
            columns = _columns([row for row, _, _ in rejected])
            columns["reasons"] = [reason for _, reason, _ in rejected]
            columns["errors"] = [error[:1024] for _, _, error in rejected]
            session.connection.execute(query("reject_outbox"), columns)
            for row, _, _ in rejected:
                self._rejected[row.topic] = self._rejected.get(row.topic, 0) + 1
            self.meter.rejected.update([row.topic for row, _, _ in rejected])
        if acknowledged or rejected:
            self._unpublished.gone(acknowledged)
            self._unpublished.gone(row for row, _, _ in rejected)
            for publisher in self.publishers.values():
                publisher.settled()
        return len(acknowledged), len(rejected)

    def _report_sick(self, session: ShardSession) -> None:
        """Log each topic that turns sick or well, and keep stream.sick_topic: `stream outbox status` shows it.

        The rows are written again every second: another relay may have taken one away, and whoever finds one that
        nobody stands by removes it.
        """
        sick = {topic: p.sick for topic, p in self.publishers.items() if p.sick is not None and p.known}
        for topic in sick.keys() - self._sick.keys():
            log.error("relay.topic_sick", topic=topic, reason=sick[topic], hint="stream outbox status")
        for topic in self._sick.keys() - sick.keys():
            log.info("relay.topic_well", topic=topic)
        well = {topic for topic, publisher in self.publishers.items() if publisher.well}
        now = time.monotonic()
        if now > self._next_report or (sick.keys(), well) != (self._sick.keys(), self._well):
            self._next_report = now + REPORT_SICK_EVERY_S
            arguments = {"topics": list(sick), "reasons": list(sick.values()), "well": list(well)}
            session.connection.execute(query("report_sick"), arguments)
        self._well = well
        self._sick = sick

    # What the steps are made of.

    def _run_through_outage(self) -> Pass | None:
        try:
            done = self.run_once()
            self._reconnect_s = 0.1
            return done
        except (psycopg.Error, Unreachable) as error:
            reason = str(error).strip()
            again_in_s = round(self._reconnect_s, 1)
            log.warning("relay.database_lost", reason=reason, again_in_s=again_in_s, hint="stream doctor")
            self._forget()
            self._pause(self._reconnect_s * random.uniform(0.5, 1.0))
            self._reconnect_s = min(self._reconnect_s * 2, LONGEST_RECONNECT_S)
            return None

    def _nothing_left(self, done: Pass) -> bool:
        """Whether nothing is left to publish but rows of sick topics, after a pass that did nothing."""
        if done.due or any(p.known and p.sick is None for p in self.publishers.values()):
            return False
        session = self._opened()
        if (
            len(session.owned) < SHARDS
        ):  # another relay has the others, or had: its session may outlive it a little
            arguments = {"shards": list(session.owned), "sick": list(self._sick)}
            [(others_have_rows,)] = session.connection.execute(
                query("others_have_rows"), arguments
            ).fetchall()
            return not others_have_rows
        return True

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(min(seconds, 0.05))

    def _busy_shards(self) -> set[int]:
        return set().union(*(publisher.busy_shards() for publisher in self.publishers.values()))

    def _drop(self, shards: set[int]) -> None:
        for publisher in self.publishers.values():
            publisher.drop(shards)

    def _forget(self) -> None:
        """The shards are lost, or given back: nothing known about them is true any more."""
        if self._session is not None:
            self._session.close()
        self._session = None
        self._unpublished = Unpublished()
        self._promotion = Promotion()
        self._sick = {}
        for publisher in self.publishers.values():
            publisher.forget()


def _columns(rows: list[Row]) -> dict[str, Any]:
    return {
        "topics": text_array(row.topic for row in rows),
        "shards": int_array(row.shard for row in rows),
        "ids": int_array(row.id for row in rows),
    }
