"""Row: one row of the outbox on its way to its topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stream.events import Headers, cloud_headers
from stream.schemas import AvroCodec

# What says that a row brings all its record's headers itself: an event's own, or those of a failed record's copy,
# whose original may never have had any of ours.
COMPLETE = ("ce_id", "stream.error.group")


@dataclass(slots=True, eq=False)
class Row:
    """As read_outbox.sql gives it."""

    id: int
    shard: int
    topic: str
    key: bytes | None
    event_id: str
    type: str
    time: datetime
    payload: bytes | None
    data: Any
    header_names: Sequence[str] | None
    header_values: Sequence[bytes | None] | None
    behind_rejected: bool
    size: int  # bytes, about

    @property
    def lane(self) -> bytes | int:
        """What is kept in order: the key; a row without one has no order, and its id as a lane of its own."""
        return self.id if self.key is None else self.key

    def value(self, codec: AvroCodec) -> bytes | None:
        """The record's value; raises InvalidEvent where it came as JSON that does not fit."""
        return self.payload if self.data is None else codec.encode(self.type, self.data)

    @property
    def own_headers(self) -> list[tuple[str, bytes | None]]:
        """Those that its event was appended with, or all where they are complete; of a broken row what there is."""
        return list(zip(self.header_names or (), self.header_values or (), strict=False))

    def headers(self) -> Headers:
        """The row's own headers below the event's; a list that is complete is published just as it is."""
        own: Headers = list(zip(self.header_names or (), self.header_values or (), strict=True))
        if self.header_names and any(name in COMPLETE for name in self.header_names):
            return own
        return cloud_headers(self.event_id, self.type, self.time) + own
