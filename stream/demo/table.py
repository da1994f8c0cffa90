"""The demo's one live table; where stderr is no terminal, a plain line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from stream.demo.watch import Seen

PLAIN_PERIOD_S = 5.0


class Display:
    """Shows what the watch sees, with news above it; all on stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._next_line = 0.0

    def news(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def tick(self, seen: Seen) -> None:
        """To be called now and then; prints the plain line when it is time for one."""
        now = time.monotonic()
        if self._console.is_terminal or now < self._next_line:
            return
        self._next_line = now + PLAIN_PERIOD_S
        groups = (
            f"{name} {group.applied:,} applied, lag {group.lag:,}, oldest {group.oldest_s:.1f} s"
            for name, group in seen.groups.items()
        )
        self.news("; ".join([f"{seen.orders:,} orders placed, {seen.relayed:,} events relayed", *groups]))

    @contextmanager
    def showing(self, seen: Callable[[], Seen]) -> Iterator[None]:
        """The live table, on a terminal, while the block runs."""
        if not self._console.is_terminal:
            yield
            return
        with Live(
            console=self._console,
            get_renderable=lambda: _table(seen()),
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield


def _table(seen: Seen) -> Table:
    table = Table()
    for name in ("", "so far", "lag", "oldest"):
        table.add_column(name, justify="right" if name else "left", min_width=10)
    table.add_row("orders placed", f"{seen.orders:,}", "", "")
    table.add_row("events relayed", f"{seen.relayed:,}", f"{seen.waiting:,}", f"{seen.oldest_s:.1f} s")
    for name, group in seen.groups.items():
        table.add_row(f"applied by {name}", f"{group.applied:,}", f"{group.lag:,}", f"{group.oldest_s:.1f} s")
    return table
