"""Verdicts: what is said of a group and of its partitions, from what was found of them (overview.py). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from stream.holds import Held
from stream.kafka.lag import PartitionLag
from stream.keys import shown_key
from stream.offsets import Partition
from stream.parked import ParkedKey
from stream.starts import adopt_command
from stream.trend import Movement, Trend, time_to_drain
from stream.views import clock, rfc3339

NEVER_RAN = "it never ran on this database"
NO_KEY = "(no key)"


@dataclass(frozen=True, slots=True)
class Blocker:
    """What keeps a partition's oldest unfinished record from being finished: `by` a key, or what is in brackets."""

    by: str
    why: str


@dataclass(frozen=True, slots=True)
class Oldest:
    """A partition's oldest unfinished record. `since`: when the broker took it; of a parked one, its first failure."""

    offset: int
    key: str | None
    event_id: UUID
    since: datetime


@dataclass(frozen=True, slots=True)
class Handling:
    """A handler that has been at this event for a while, in a process of the group."""

    worker: str
    topic: str
    partition: int
    offset: int
    key: str | None
    event_id: str
    since: datetime


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition of a group: how far it is behind, how that goes, which worker reads it, what stands in the way."""

    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int | None
    lag_seconds: float | None
    rate_in: float | None
    rate_out: float | None
    eta_seconds: float | None
    movement: Movement
    owner: str | None
    blocked_by: str | None
    blocked_why: str | None
    oldest: Oldest | None

    @property
    def name(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, slots=True)
class History:
    """What a group has not finished of the records that were in its topics at its first start; `rate`: at most so many
    a second, None where its file says nothing, or is not here."""

    records: int
    rate: float | None


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group. `members`: processes that are there. `lag` in records, `lag_seconds` the age of the oldest of them;
    both None where nothing was ever committed, or the broker does not answer. `parked`, `held`: keys that wait for
    their next try, or for a person, of whom `held_key` waits longest. `dead`: open letters.

    `problem`: what is wrong with a topic, and the command to type. `stalled`, `behind`: what is said of partitions that
    do not move, and of those whose lag grows.
    """

    group: str
    members: int
    lag: int | None
    lag_seconds: float | None
    parked: int
    held: int
    dead: int
    holds: Sequence[Held] = ()
    ran: bool = True
    held_key: str | None = None
    problem: TopicProblem | None = None
    stalled: str | None = None
    behind: str | None = None

    @property
    def state(self) -> str:
        if not self.holds:
            return "running" if self.members else "no members"
        first = self.holds[0]
        return first.by if first.until is None else f"{first.by} until {rfc3339(first.until)}"

    @property
    def verdict(self) -> str:
        """What is wrong, the worst first; OK where nothing keeps the group from its work."""
        if self.holds:
            return self.holds[0].by.upper()
        if self.problem is not None:
            return self.problem.verdict
        if self.lag and not self.members:
            return "STOPPED"
        if self.stalled is not None:
            return "STALLED"
        if self.held:
            return "KEYS HELD"
        return "OK" if self.behind is None else "FALLING BEHIND"

    @property
    def reason(self) -> str | None:
        """The verdict in words."""
        if self.holds:
            return "; ".join(
                held.reason if not n else f"{held.by} too: {held.reason}" for n, held in enumerate(self.holds)
            )
        if self.problem is not None:
            return self.problem.reason
        keys = "1 key waits" if self.held == 1 else f"{self.held} keys wait"
        said = {
            "STOPPED": f"nobody reads what waits: {self.lag} records",
            "STALLED": self.stalled,
            "KEYS HELD": f"{keys} for an operator, {self.held_key or NO_KEY} longest",
            "FALLING BEHIND": self.behind,
        }
        return said.get(self.verdict, None if self.ran else NEVER_RAN)

    @property
    def commands(self) -> list[str]:
        """What to type next."""
        if self.holds:
            return [f"stream groups resume {self.group}"]
        if self.problem is not None:
            return [self.problem.command]
        said = {
            "STOPPED": f"stream consume --group {self.group}",
            "STALLED": f"stream groups describe {self.group}",
            "KEYS HELD": f"stream parked list --group {self.group}",
            "FALLING BEHIND": f"stream groups describe {self.group}",
        }
        return [said[self.verdict]] if self.verdict in said else []


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """A topic that the group has begun to read is gone, or is another than it was."""

    verdict: str
    reason: str
    command: str


def topic_problem(group: str, met: Mapping[str, str], ids: Mapping[str, str]) -> TopicProblem | None:
    """By the ids of the topics as the group met them, and as they are now."""
    for topic, id in sorted(met.items()):
        if topic not in ids:
            return TopicProblem("TOPIC MISSING", f"topic {topic} does not exist", "stream migrate")
        if ids[topic] != id:
            return TopicProblem(
                "TOPIC RECREATED",
                f"topic {topic} was deleted and created again; its offsets mean nothing now",
                adopt_command(group, topic),
            )
    return None


def blocker(
    partition: Partition,
    one: PartitionLag,
    keys: Sequence[ParkedKey],
    owner: str | None,
    handling: Sequence[Handling],
    holds: Sequence[Held],
) -> Blocker | None:
    """What keeps the oldest unfinished record of a partition, by `keys` parked of it, those that wait longest first,
    and what handlers of its `owner` have been at for a while."""
    if one.lag:
        at = [each for each in handling if (each.topic, each.partition) == partition]
        slow = next((each for each in at if each.offset == one.committed), next(iter([*at, *handling]), None))
        if slow is not None:
            where = "" if slow in at else f", of {slow.topic}[{slow.partition}],"
            return Blocker(
                slow.key or NO_KEY, f"event {slow.event_id}{where} in its handler since {clock(slow.since)}"
            )
    if keys:
        key = next((each for each in keys if each.held), keys[0])
        more = "" if len(keys) == 1 else f"; and {len(keys) - 1} more of this partition"
        return Blocker(shown_key(key.key) or NO_KEY, _parked_words(key) + more)
    if not one.lag:
        return None
    if holds:
        return Blocker(f"({holds[0].by})", holds[0].reason)
    return None if owner is not None else Blocker("(no member)", "no process reads this partition")


def oldest(one: PartitionLag, keys: Sequence[ParkedKey]) -> Oldest | None:
    """The oldest record of a partition that the group has not finished, parked ones too."""
    first = min(keys, key=lambda key: key.offset, default=None)
    if first is not None and (one.next is None or first.offset < one.next.offset):
        return Oldest(first.offset, shown_key(first.key), first.event_id, first.since)
    if one.next is None:
        return None
    return Oldest(one.next.offset, shown_key(one.next.key), one.next.event_id, one.next.time)


def history(
    ends: Mapping[Partition, int], lags: Mapping[Partition, PartitionLag], rate: float | None
) -> History | None:
    """What is left of it, by the `ends` of the logs at the group's first start; None where nothing is. What retention
    took is not counted."""
    left = sum(max(0, ends.get(p, 0) - (one.end - one.lag)) for p, one in lags.items() if one.lag)
    return History(left, rate) if left else None


def stalled(
    trends: Mapping[Partition, Trend], owners: Mapping[Partition, str], handling: Iterable[Handling]
) -> set[Partition]:
    """Partitions that stand still, without those whose turn has not come: a process that has little room reads one
    partition after the other."""
    busy = {(each.topic, each.partition) for each in handling}
    moving = {owners.get(p) for p, each in trends.items() if each.rate_out}
    return {
        partition
        for partition, each in trends.items()
        if each.movement == "stalled" and (partition in busy or owners.get(partition) not in moving)
    }


def group_trend(
    trends: Mapping[Partition, Trend],
    lags: Mapping[Partition, int | None],
    owners: Mapping[Partition, str],
) -> Trend:
    """Of all partitions together. Each process shares its time among its partitions, so they drain together; the group
    is done when its last process is."""
    shares: dict[str | None, list[Partition]] = defaultdict(list)
    for partition, lag in lags.items():
        if lag is not None:
            shares[owners.get(partition)].append(partition)
    times = []
    for partitions in shares.values():
        lag = sum(lags[p] or 0 for p in partitions)
        rates = [(trends[p].rate_in, trends[p].rate_out) for p in partitions]
        times.append(time_to_drain(lag, _sum(one for one, _ in rates), _sum(one for _, one in rates)))
    known = [each for each in times if each is not None]
    return Trend(
        _sum(each.rate_in for each in trends.values()),
        _sum(each.rate_out for each in trends.values()),
        max(known) if known and len(known) == len(times) else None,
    )


def handlings(workers: Iterable[tuple[str, list[dict[str, Any]]]]) -> list[Handling]:
    """What each worker's row says its handlers are at, those that have been at it longest first."""
    found = [
        Handling(worker=worker, **(row | {"since": datetime.fromisoformat(row["since"])}))
        for worker, rows in workers
        for row in rows
    ]
    return sorted(found, key=lambda each: each.since)


def _parked_words(key: ParkedKey) -> str:
    error = f"{key.error_class or 'error'}: {key.error_message or ''}"
    if key.held:
        return f"held since {clock(key.since)}: {error}"
    when = "" if key.due_at is None else f", try {key.attempts + 1} at {clock(key.due_at)}"
    return f"parked since {clock(key.since)}{when}: {error}"


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
