"""`stream`, and `python -m stream`: a signal is met before anything slow is loaded."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence

# Commands that stop in order on a signal, also while they start; the others end at once.
IN_THE_FOREGROUND = frozenset({"demo", "dev", "relay", "consume"})


def main() -> None:
    """Run the command line. Until a command in the foreground takes the signals over, one ends the process with 0."""
    if in_the_foreground(sys.argv[1:]):
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:  # what the parent ignores for it stays ignored
                signal.signal(number, lambda *_: os._exit(0))
    from stream.cli import main as command

    command(prog_name="stream")


def in_the_foreground(words: Sequence[str]) -> bool:
    """Whether these words, as they are typed after `stream`, run a command in the foreground."""
    command = next(_without_options(words), None)
    if command == "topics":
        return "--follow" in words or "-f" in words
    return command in IN_THE_FOREGROUND and not (command == "demo" and "place" in words)


def _without_options(words: Sequence[str]) -> Iterator[str]:
    value = False
    for word in words:
        if not value and not word.startswith("-"):
            yield word
        value = word in ("--log-level", "--log-format")


if __name__ == "__main__":
    main()
