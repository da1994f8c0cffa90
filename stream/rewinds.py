"""Rewinds: where a group's offsets are to go, and what that means. Kafka's scenarios, as its own tool resolves them.

Pure: what the broker said goes in, a plan comes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from stream.errors import Refused, UsageError
from stream.offsets import Partition

Scenario = Literal[
    "to-earliest",
    "to-latest",
    "to-current",
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "from-file",
    "to-group",
]
Mode = Literal["repair", "reapply"]

_DURATION = re.compile(
    r"P(?:([0-9]+)D)?(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]{1,9})?)S)?)?",
    re.IGNORECASE,
)
_SHORT = re.compile(r"(?=[0-9])(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+(?:\.[0-9]{1,9})?)s)?")
_TOPIC = re.compile(r"([^:]+)(?::([0-9]{1,9}(?:,[0-9]{1,9})*))?")


@dataclass(frozen=True, slots=True)
class Target:
    """Where to: a scenario and its value. `number`: the offset, or how far to shift. `time`: of a date, or so long ago
    as the duration said. `offsets`: those of the file, or that the other `group` has committed."""

    scenario: Scenario
    number: int = 0
    time: datetime | None = None
    group: str | None = None
    offsets: Mapping[Partition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What is known of one partition. `committed`: the group's offset, None where it has none. `low`, `high`: first
    offset of the log, and its end. `at`: the first offset whose record is not older than the target's time, None where
    all are, or none is asked for."""

    committed: int | None
    low: int
    high: int
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's part of a plan. `old`: None where nothing was committed. `end`: of the log."""

    topic: str
    partition: int
    old: int | None
    new: int
    end: int
    notes: Sequence[str] = ()

    @property
    def place(self) -> Partition:
        return self.topic, self.partition

    @property
    def upto(self) -> int:
        """The end of what runs again: where the group was, or, where it was nowhere, the end of the log."""
        return self.end if self.old is None else min(self.old, self.end)

    @property
    def records(self) -> int:
        """How many are read again, by their offsets: compaction and transactions leave fewer."""
        return max(0, self.upto - self.new)

    @property
    def skipped(self) -> int:
        """How many are never read."""
        return 0 if self.old is None else max(0, self.new - self.old)

    @property
    def note(self) -> str | None:
        notes = [*self.notes, *([f"skips {self.skipped}"] if self.skipped else [])]
        return ", ".join(notes) or None


@dataclass(frozen=True)
class RewindPlan:
    """Where each partition of a group is to go, in order."""

    group: str
    moves: Sequence[Move]

    @property
    def total(self) -> int:
        """How many records are read again."""
        return sum(move.records for move in self.moves)

    @property
    def skipped(self) -> int:
        return sum(move.skipped for move in self.moves)

    @property
    def ranges(self) -> dict[Partition, tuple[int, int]]:
        """What is read again: [from, to) of the partitions where that is anything."""
        return {move.place: (move.new, move.upto) for move in self.moves if move.records}

    @property
    def changes(self) -> dict[Partition, int]:
        """The new offsets of the partitions that are moved at all."""
        return {move.place: move.new for move in self.moves if move.new != move.old}

    @property
    def olds(self) -> dict[Partition, int]:
        """The offsets that undo it. A partition without one cannot be brought back to having none."""
        return {move.place: move.old for move in self.moves if move.old is not None}


def plan(group: str, target: Target, states: Mapping[Partition, PartitionState]) -> RewindPlan:
    """Resolve the target for each partition; a file or another group says itself which are moved.

    Raises Refused where --shift-by meets a partition without a committed offset.
    """
    chosen = sorted(states)
    if target.scenario in ("from-file", "to-group"):
        chosen = [partition for partition in chosen if partition in target.offsets]
    return RewindPlan(group, [_move(group, target, partition, states[partition]) for partition in chosen])


def _move(group: str, target: Target, partition: Partition, state: PartitionState) -> Move:
    new, note = _resolve(group, target, partition, state)
    empty = "empty" if state.low == state.high else None
    none = "no commit" if state.committed is None else None
    notes = [each for each in (empty or note, none) if each is not None]
    return Move(*partition, state.committed, new, state.high, notes)


def _resolve(
    group: str, target: Target, partition: Partition, state: PartitionState
) -> tuple[int, str | None]:
    """
    | scenario                | new offset                                                        |
    |-------------------------|-------------------------------------------------------------------|
    | to-earliest, to-latest  | the first of the log, its end                                     |
    | to-current              | the committed one as it is; none: the end                         |
    | to-offset, shift-by     | the number, the committed one plus it; clamped to the log         |
    | from-file, to-group     | what the file says, what the other group has; clamped to the log  |
    | to-datetime, by-duration| the first record not older; all are older: the end                |
    """
    match target.scenario:
        case "to-earliest":
            return state.low, None
        case "to-latest":
            return state.high, None
        case "to-current":
            return (state.high if state.committed is None else state.committed), None
        case "to-datetime" | "by-duration":
            return (state.high, "past the end") if state.at is None else (state.at, None)
        case "shift-by":
            if state.committed is None:
                raise Refused(
                    f"group {group!r} has no committed offset for {partition[0]}[{partition[1]}]: nothing to shift",
                    hint=f"stream rewind --group {group} --to-current",
                )
            wanted = state.committed + target.number
        case "to-offset":
            wanted = target.number
        case "from-file" | "to-group":
            wanted = target.offsets[partition]
    new = min(max(wanted, state.low), state.high)
    return new, None if new == wanted else "clamped"


def in_scope(
    partitions: Iterable[Partition], scope: Sequence[tuple[str, frozenset[int] | None]]
) -> set[Partition]:
    """Those of the partitions that `--topic` names; all where it names none.

    Raises UsageError where a topic or partition is named that is not among them.
    """
    there = set(partitions)
    if not scope:
        return there
    chosen: set[Partition] = set()
    for topic, numbers in scope:
        of_topic = {partition for partition in there if partition[0] == topic}
        if not of_topic:
            topics = ", ".join(sorted({name for name, _ in there})) or "none"
            raise UsageError(f"--topic: the group does not read {topic!r}; it reads {topics}")
        if numbers is not None:
            missing = sorted(numbers.difference(number for _, number in of_topic))
            if missing:
                raise UsageError(
                    f"--topic: {topic} has partitions 0 to {len(of_topic) - 1}, got {missing[0]}"
                )
            of_topic = {partition for partition in of_topic if partition[1] in numbers}
        chosen |= of_topic
    return chosen


def parse_topic(text: str) -> tuple[str, frozenset[int] | None]:
    """`orders`, or `orders:0,1`; raises UsageError."""
    found = _TOPIC.fullmatch(text)
    if found is None:
        raise UsageError(f"--topic: expected TOPIC or TOPIC:0,1, got {text!r:.100}")
    numbers = None if found[2] is None else frozenset(int(number) for number in found[2].split(","))
    return found[1], numbers


def parse_duration(text: str) -> timedelta:
    """An ISO 8601 duration of days and less, `P1DT12H30M15.5S`, or in short `36h`, `1d12h`; raises UsageError."""
    found = _DURATION.fullmatch(text) or _SHORT.fullmatch(text)
    if found is not None and any(found.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
        try:
            return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError:
            pass
    raise UsageError(f"--by-duration: expected a duration such as 90m, 2h, 1d or PT2H30M, got {text!r:.100}")


def explain(mode: Mode) -> str:
    """What the mode means, in one line."""
    if mode == "repair":
        return (
            "--repair   what was applied stays applied, only what never was runs: fills holes, safe to repeat"
        )
    return "--reapply  handlers run once more for everything in the range, also for what was applied"
