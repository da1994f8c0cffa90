"""`stream`, and `python -m stream`: a signal is met before anything slow is loaded."""

from __future__ import annotations

import os
import signal
import sys

# Commands that stop in order on a signal, also while they start; the others end at once.
IN_THE_FOREGROUND = frozenset({"demo", "dev", "relay", "consume"})


def main() -> None:
    """Run the command line. Until a command in the foreground takes the signals over, one ends the process with 0."""
    if not IN_THE_FOREGROUND.isdisjoint(sys.argv):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
    from stream.cli import main as command

    command(prog_name="stream")


if __name__ == "__main__":
    main()
