"""Text for a terminal: aligned columns, ages, and what others wrote made harmless."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows under their header, each column as wide as its widest cell; nothing is cut or wrapped."""
    lines = [header, *rows]
    widths = [max(cell_len(line[n]) for line in lines) for n in range(len(header))]
    padded = [[_padded(cell, width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return ["  ".join(cells).rstrip() for cells in padded]


def printable(text: str, most: int = 200) -> str:
    """One line of at most `most` characters; control characters, which could steer a terminal, are escaped."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return safe if len(safe) <= most else safe[: most - 3] + "..."


def duration(seconds: float) -> str:
    """`8 ms`, `2.4 s`, `12 min`, `5.2 h`, `3.0 d`."""
    for unit, size, below in (("ms", 0.001, 1), ("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if abs(seconds) < below:
            return f"{seconds / size:.0f} {unit}" if unit in ("ms", "min") else f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86400:.1f} d"


def plural(count: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - cell_len(cell))
