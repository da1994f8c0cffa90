"""Ends: where a group is done that was told to end with what there is (`--exit-at-end`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stream.control import Control
from stream.errors import PartlyDone
from stream.kafka.consumer import GroupConsumer, KafkaException
from stream.keys import shown_key
from stream.offsets import Partition, Progress

MOST_NAMED = 20  # keys in the last line of a group that leaves some behind


class Ends:
    """The ends of all partitions a group reads, its retry topic's too, at its start. What comes later is not waited
    for."""

    def __init__(self, group: str, ends: Mapping[Partition, int]) -> None:
        self._group = group
        self._ends = ends

    def check_hold(self, control: Control) -> None:
        """Raise PartlyDone where something holds the group that will not pass by itself soon."""
        hold = control.hold
        if hold in ("halted", "paused") or (hold == "breaker open" and control.probe_failures):
            raise PartlyDone(
                f"group {self._group!r} is held ({hold}): {control.reason}",
                hint=f"stream groups resume {self._group}",
            )

    def check_parked(self, parked: Sequence[tuple[bytes | None, int, bool]]) -> None:
        """Raise PartlyDone where keys are left behind: (key, partition, held) each."""
        if not parked:
            return
        keys = ", ".join((shown_key(key) or f"(none, partition {number})")[:100] for key, number, _ in parked)
        held = any(held for *_, held in parked)
        raise PartlyDone(
            f"group {self._group!r}: left behind, {'parked or held' if held else 'parked'}: {keys}",
            hint=f"stream parked list --group {self._group}",
        )

    def reached(self, consumer: GroupConsumer) -> bool:
        """Whether the group's committed offsets, those of all its members together, have reached the ends.

        To be asked while no run is under way and what is finished is committed.
        """
        try:
            committed = consumer.committed(self._ends)
        except KafkaException:
            return False
        return all((committed[partition] or 0) >= end for partition, end in self._ends.items())

    def read(self, progress: Progress) -> bool:
        """Whether this member has read all of its partitions to their ends."""
        return all((progress.position(partition) or end) >= end for partition, end in self._ends.items())
