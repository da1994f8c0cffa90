"""Ends: where a group is done that was told to end with what there is (`--exit-at-end`)."""

from __future__ import annotations

from collections.abc import Mapping

from stream.kafka.consumer import GroupConsumer, KafkaException
from stream.offsets import Partition, Progress


class Ends:
    """The ends of all partitions a group reads, its retry topic's too, at its start. What comes later is not waited
    for."""

    def __init__(self, ends: Mapping[Partition, int]) -> None:
        self._ends = ends

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
