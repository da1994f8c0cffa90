"""A `stream` command that ends when the process that started it does: `python -m stream.tied relay`.

Its standard input is a pipe whose other end only the parent has. However the parent dies, the kernel closes it;
the command then gets SIGTERM, and stops as it always does.
"""

from __future__ import annotations

import os
import signal
import threading
import time

LONGEST_STOP_S = 30.0  # above what any command takes for a clean stop


def tie() -> None:
    """Watch standard input from a thread of its own, until it is closed."""
    threading.Thread(target=_watch, name="tied", daemon=True).start()


def _watch() -> None:
    while os.read(0, 4096):
        pass
    # The log's reader is gone too: a line that cannot be written must not keep the command from stopping.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LONGEST_STOP_S)
    os._exit(1)


if __name__ == "__main__":
    from stream.__main__ import main

    tie()
    main()
