"""`stream`, and `python -m stream`: a signal is met before anything slow is loaded."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run the command line. Until a command takes the signals over, one of them ends the process with 0."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    from stream.cli import main as command

    command(prog_name="stream")


if __name__ == "__main__":
    main()
