"""Vitals: whether a process lives, and whether it is ready. Pure: signs and what was read last in, reasons out.

A process lives as long as its loops go round; one that does not is to be started again. That a broker or a database is
down is no reason to start anybody again. It is ready while it makes progress, or has nothing to do: a new version whose
processes do not get ready must not replace the rest of the old one's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stream.offsets import Partition

SILENT_S = 300.0  # a loop that did not go round for so long does not live
STUCK_S = 60.0  # without progress beyond a handler's timeout, while there is something to do
MOST_SHOWN = 300  # characters of a reason


@dataclass(frozen=True, slots=True)
class GroupSigns:
    """What one group's loop shows of itself, in seconds where not said otherwise.

    `round_s`: since it last went round. `still_s`: since it last made progress. `waiting`: records in memory. `hold`
    and `reason`: what holds the group, if anything. `offsets`: the first unfinished one of each partition.
    """

    group: str
    round_s: float
    still_s: float
    joined: bool
    stopping: bool
    waiting: int
    active: int
    limit: int
    stalled: int
    timeout: float
    hold: str | None = None
    reason: str | None = None
    offsets: Mapping[Partition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RelaySigns:
    """What a relay shows of itself: seconds since its loop last went round; whether it has its database session; how
    many topics have rows that wait, and of those that cannot be written, the reasons."""

    round_s: float
    connected: bool
    stopping: bool
    topics: int
    sick: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """Yes or no, and why; a yes may have something to say too."""

    ok: bool
    reasons: Sequence[str] = ()


def alive(signs: Sequence[GroupSigns | RelaySigns]) -> Answer:
    """Whether every loop of the process goes round."""
    silent = [
        f"{_name(one)}: its loop has not gone round for {one.round_s:.0f} s"
        for one in signs
        if one.round_s > SILENT_S
    ]
    return Answer(not silent, silent)


def ready(
    signs: Sequence[GroupSigns | RelaySigns], down: Mapping[str, str], lags: Mapping[str, int]
) -> Answer:
    """Whether every part of the process makes progress or has nothing to do.

    `down`: what each dependency that does not answer last said. `lags`: records each group has before it, as the broker
    last said.
    """
    reasons = [_shown(f"{name}: {said}") for name, said in sorted(down.items())]
    notes: list[str] = []
    for one in signs:
        if isinstance(one, GroupSigns):
            found = _of_group(one, lags.get(one.group, 0))
        else:
            found = _of_relay(one)
        reasons += [_shown(f"{_name(one)}: {reason}") for reason in found]
        notes += [_shown(f"{_name(one)}: {note}") for note in _notes(one)]
    return Answer(not reasons, [*reasons, *notes])


def _of_group(signs: GroupSigns, lag: int) -> list[str]:
    if signs.stopping:
        return ["it is stopping"]
    if not signs.joined:
        return ["it has not joined yet"]
    if signs.hold in ("halted", "breaker open"):
        return [f"{signs.hold}: {signs.reason} -> stream groups resume {signs.group}"]
    busy = signs.waiting or lag
    if signs.hold is None and busy and signs.still_s > STUCK_S + signs.timeout:
        what = f"{signs.waiting or lag} records wait, and nothing was finished for {signs.still_s:.0f} s"
        return [f"{what} -> stream groups describe {signs.group}"]
    return []


def _of_relay(signs: RelaySigns) -> list[str]:
    if signs.stopping:
        return ["it is stopping"]
    if not signs.connected:
        return ["it has no session at the database"]
    if signs.topics and len(signs.sick) == signs.topics:
        return ["no topic with rows can be written -> stream outbox status"]
    return []


def _notes(signs: GroupSigns | RelaySigns) -> list[str]:
    """What keeps nobody from being ready, and is worth saying: somebody wanted it, or others go on."""
    if isinstance(signs, RelaySigns):
        return [f"topic {topic} cannot be written: {reason}" for topic, reason in sorted(signs.sick.items())]
    return [f"paused: {signs.reason}"] if signs.hold == "paused" and not signs.stopping else []


def _name(signs: GroupSigns | RelaySigns) -> str:
    return f"group {signs.group}" if isinstance(signs, GroupSigns) else "relay"


def _shown(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."
