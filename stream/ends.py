"""Ends: where a group is done that was told to end with what there is (`--exit-at-end`)."""

from __future__ import annotations

from collections.abc import Mapping

from stream.errors import PartlyDone
from stream.failures import shown_key
from stream.kafka.consumer import GroupConsumer, KafkaException
from stream.lanes import Lanes
from stream.offsets import Partition, Progress


class Ends:
    """The ends of all partitions of a group's topics, read at its start. What comes later is not waited for."""

    def __init__(self, group: str, ends: Mapping[Partition, int]) -> None:
        self._group = group
        self._ends = ends

    def reached(self, consumer: GroupConsumer, progress: Progress, lanes: Lanes) -> bool:
        """Whether the group's committed offsets, those of all its members together, have reached the ends.

        To be asked while no run is under way and what is finished is committed. Raises PartlyDone, naming the keys,
        where nothing is left to this member but keys that still fail: waiting for the others, who may wait for it
        with failing keys of their own, would never end. Whoever works on takes its partitions over.
        """
        try:
            committed = consumer.committed(self._ends)
        except KafkaException:
            return False
        left = {partition for partition, end in self._ends.items() if (committed[partition] or 0) < end}
        if left & progress.partitions() and self.read(progress) and not lanes.startable:
            keys = sorted({shown_key(record) for record in lanes.held()})
            if keys:
                raise PartlyDone(f"group {self._group!r}: left behind, still failing: {', '.join(keys)}")
        return not left

    def read(self, progress: Progress) -> bool:
        """Whether this member has read all of its partitions to their ends."""
        return all((progress.position(partition) or end) >= end for partition, end in self._ends.items())
