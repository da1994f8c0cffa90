"""Unpublished: the rows of the outbox as one relay sees them; which to read next, and where to begin.

Every read sees, in one snapshot, all unpublished rows of a (topic, shard) from its first on. There is no cursor
over ids, since a lower id may commit later; what may be skipped is worked out in floors.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from operator import attrgetter

from stream.database import LOCK_APPEND, bytea_array, int_array, query, text_array
from stream.failpoints import failpoint
from stream.floors import Floors, ReadFrom, Tally
from stream.publisher import Publisher
from stream.rows import Row
from stream.shards import ShardSession

ROWS_A_SHARD = 64  # read at once of one topic; doubled while a shard comes back full
MOST_ROWS_A_SHARD = 2048
MOST_ROWS_A_READ = 6000
MOST_BYTES_A_READ = 8 * 1024 * 1024
LOOK_AT_LOCKS_EVERY_S = 0.1
DISCOVER_TOPICS_EVERY_S = 1.0
LIVELY_S = 1.0  # a topic with rows a moment ago is read before the others

Pair = tuple[str, int]  # topic and shard
Queued = dict[Pair, set[bytes]]


class Unpublished:
    """What a relay believes about the table. Forgotten with the session that owns the shards."""

    def __init__(self) -> None:
        self._ids = Floors()
        self._places: dict[Pair, ReadFrom] = {}
        self._limits: dict[Pair, int] = {}
        self._drops: dict[str, int] = {}  # of each topic's publisher
        self._tally = Tally()
        self._last_id = 0
        self._last_rows: dict[str, float] = {}  # topic -> when a read last found rows of it
        self._next_look = self._soonest_look = 0.0
        self._next_discovery = 0.0

    def shards_changed(self) -> None:
        self._tally = Tally()

    def gone(self, rows: Iterable[Row]) -> None:
        """These were deleted from the table."""
        self._tally.gone(row.id for row in rows)

    def is_quiet(self, last_id: int) -> bool:
        """Whether everything up to this id is known to be gone, and so there is nothing to read."""
        if last_id < self._last_id:  # the sequence was set back: nothing known is true any more
            self._ids, self._places, self._tally = Floors(), {}, Tally()
        self._last_id = last_id
        return self._tally.is_complete(last_id)

    def read(
        self, session: ShardSession, last_id: int, publishers: Mapping[str, Publisher]
    ) -> tuple[dict[str, list[Row]], set[str]]:
        """Rows by topic, in id order, for the topics that want some; and topics with rows that were not asked for.

        `last_id` was read from the sequence before this call.
        """
        wanting = {topic: publisher for topic, publisher in publishers.items() if publisher.wants_rows()}
        # Where the few rows that are new have all been found, the other topics need not be read.
        lively = time.monotonic() - LIVELY_S
        first = {topic: p for topic, p in wanting.items() if self._last_rows.get(topic, 0.0) > lively}
        rows, known = self._read_some(session, first)
        if first and not self._tally.lacks(last_id, [*known, *(row.id for row in rows)]):
            return _by_topic(rows), set()
        more, also_known = self._read_some(session, {t: p for t, p in wanting.items() if t not in first})
        rows, known = rows + more, known + also_known
        found_none = not rows and not known and len(wanting) == len(publishers)
        new = self._discover(session, publishers.keys(), now_please=found_none)
        if found_none and not new:
            if self._ids.settled_in(session.owned) >= last_id:
                self._tally.settled_at(last_id)
            else:
                self._next_look = self._soonest_look
        return _by_topic(rows), new

    def _read_some(
        self, session: ShardSession, wanting: Mapping[str, Publisher]
    ) -> tuple[list[Row], list[int]]:
        """Rows of these topics in id order, and the ids in memory, which were left out."""
        settled = list(self._ids.settled)
        self._notice_drops(wanting)
        queued = {
            (topic, shard): keys
            for topic, publisher in wanting.items()
            for shard, keys in publisher.queued().items()
        }
        known = [id for publisher in wanting.values() for id in publisher.known]
        limits = self._chosen_limits(session, wanting, queued)
        rows, complete = self._fetch(session, limits, known, queued)
        failpoint("relay.read")
        self._learn(limits, rows, complete, settled, wanting, queued)
        self._last_rows.update(dict.fromkeys((row.topic for row in rows), time.monotonic()))
        return rows, known

    def _notice_drops(self, wanting: Mapping[str, Publisher]) -> None:
        """Rows that a publisher dropped are in the table and not in memory: no read may begin behind them."""
        for topic, publisher in wanting.items():
            if self._drops.get(topic, 0) != publisher.drops:
                self._drops[topic] = publisher.drops
                for (of, _), place in self._places.items():
                    if of == topic:
                        place.was_lost()

    def _chosen_limits(
        self, session: ShardSession, wanting: Mapping[str, Publisher], queued: Queued
    ) -> dict[Pair, int]:
        """How many rows to read of each (topic, shard)."""
        limits = {}
        for pair in [(topic, shard) for topic in wanting for shard in session.owned]:
            refill = self._place(pair).refills(queued.get(pair, set()))
            limits[pair] = MOST_ROWS_A_SHARD if refill else self._limits.get(pair, ROWS_A_SHARD)
        too_many = max(sum(limits.values()) / MOST_ROWS_A_READ, 1.0)
        return {pair: max(int(limit / too_many), 1) for pair, limit in limits.items()}

    def _fetch(
        self, session: ShardSession, limits: dict[Pair, int], known: list[int], queued: Queued
    ) -> tuple[list[Row], bool]:
        """The rows, and whether none was left out for its size."""
        if not limits:
            return [], False
        cursor = session.connection.execute(
            query("read_outbox"),
            {
                "topics": text_array(topic for topic, _ in limits),
                "shards": int_array(shard for _, shard in limits),
                "floors": int_array(self._place(pair).begin(queued.get(pair, set())) for pair in limits),
                "limits": int_array(limits.values()),
                "known": int_array(known),
                # An array of arrays of different lengths is none in PostgreSQL.
                "left_out": text_array(bytea_array(queued.get(pair, ())) for pair in limits),
                "bytes": MOST_BYTES_A_READ,
            },
            # `<> all($1)` is hashed for a constant only: a prepared plan is ten times slower with ids in memory.
            prepare=False if known or queued else None,
            binary=True,
        )
        fetched = cursor.fetchall()
        rows = [Row(*columns[:-1]) for columns in fetched]
        rows.sort(key=attrgetter("id"))
        return rows, not fetched or fetched[0][-1] == len(fetched)

    def _learn(
        self,
        limits: dict[Pair, int],
        rows: list[Row],
        complete: bool,
        settled: list[int],
        wanting: Mapping[str, Publisher],
        queued: Queued,
    ) -> None:
        """Raise the floors, and choose the next limits. Rows in memory count as seen."""
        lowest = {
            (topic, shard): id
            for topic, publisher in wanting.items()
            for shard, id in publisher.lowest().items()
        }
        counts: dict[Pair, int] = {}
        last: dict[Pair, int] = {}
        for row in rows:
            pair = (row.topic, row.shard)
            counts[pair] = counts.get(pair, 0) + 1
            last[pair] = row.id
            lowest.setdefault(pair, row.id)
            lowest[pair] = min(row.id, lowest[pair])
        for pair, limit in limits.items():
            left_out = queued.get(pair, set())
            full = counts.get(pair, 0) >= limit
            if complete:
                self._place(pair).was_read(
                    left_out,
                    settled=settled[pair[1]],
                    lowest=lowest.get(pair),
                    last=last.get(pair),
                    full=full,
                )
            else:
                self._place(pair).was_cut_short(left_out)
            wanted = self._limits.get(pair, ROWS_A_SHARD)
            grown = min(wanted * 2, MOST_ROWS_A_SHARD)
            self._limits[pair] = grown if full else max(wanted // 2, ROWS_A_SHARD)

    def _place(self, pair: Pair) -> ReadFrom:
        place = self._places.get(pair)
        if place is None:
            place = self._places[pair] = ReadFrom()
        return place

    def look_at_locks(self, session: ShardSession, last_id: int) -> None:
        """Who holds append locks, after `last_id` was read: what is settled, for the reads that come. Less often where
        a huge transaction makes it slow."""
        begun = time.monotonic()
        if begun < self._next_look:
            return
        cursor = session.connection.execute(query("append_lock_holders"), {"append_class": LOCK_APPEND})
        self._ids.observe(last_id, cursor.fetchall())
        now = time.monotonic()
        self._soonest_look = now + 10 * (now - begun)
        self._next_look = max(now + LOOK_AT_LOCKS_EVERY_S, self._soonest_look)

    def _discover(self, session: ShardSession, topics: Iterable[str], *, now_please: bool) -> set[str]:
        """Topics with rows that nobody declared: retries, another project."""
        now = time.monotonic()
        if now < self._next_discovery and not now_please:
            return set()
        self._next_discovery = now + DISCOVER_TOPICS_EVERY_S
        cursor = session.connection.execute(query("outbox_topics"), {"known": list(topics)})
        return {topic for (topic,) in cursor}


def _by_topic(rows: Iterable[Row]) -> dict[str, list[Row]]:
    by_topic: dict[str, list[Row]] = {}
    for row in rows:
        by_topic.setdefault(row.topic, []).append(row)
    return by_topic
