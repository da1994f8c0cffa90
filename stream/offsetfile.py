"""Offsets as CSV, as Kafka's own tool writes and reads them: `topic,partition,offset`, or with `group,` in front."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from stream.errors import UsageError
from stream.offsets import Partition

Offsets = dict[Partition, int]


def lines(offsets: Mapping[Partition, int], group: str | None = None) -> str:
    """A line for each partition, in order; with the group's name where one is given."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for (topic, partition), offset in sorted(offsets.items()):
        rows.writerow(([] if group is None else [group]) + [topic, partition, offset])
    return text.getvalue()


def parse(text: str, name: str) -> dict[str | None, Offsets]:
    """The offsets of each group, None where the lines name none. `name` is the file's, for errors.

    Raises UsageError where a line is no such line, or says something again.
    """
    found: dict[str | None, Offsets] = {}
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise UsageError(f"{name}: {error}") from None
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if not (3 <= len(cells) <= 4 and _is_number(cells[-1]) and _is_number(cells[-2])):
            raise UsageError(
                f"{name}, line {number}: expected topic,partition,offset (or group,topic,partition,offset),"
                f" got {','.join(row)!r:.200}"
            )
        group = cells[0] if len(cells) == 4 else None
        partition = (cells[-3], int(cells[-2]))
        offsets = found.setdefault(group, {})
        if offsets.setdefault(partition, int(cells[-1])) != int(cells[-1]):
            raise UsageError(
                f"{name}, line {number}: {partition[0]}[{partition[1]}] has an offset already,"
                f" {offsets[partition]}, got {cells[-1]}"
            )
    if len(found) > 1 and None in found:
        raise UsageError(f"{name}: some lines name a group, and some do not")
    if not found:
        raise UsageError(f"{name}: expected lines topic,partition,offset, got none")
    return found


def of_group(found: Mapping[str | None, Offsets], group: str, name: str) -> Offsets:
    """The lines that are of this group; raises UsageError where there are none."""
    offsets = found.get(None) or found.get(group)
    if offsets is None:
        named = ", ".join(repr(each) for each in sorted(filter(None, found)))
        raise UsageError(f"{name}: no line is of group {group!r}; its lines are of {named:.200}")
    return offsets


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19  # more than 18 digits fit no log
