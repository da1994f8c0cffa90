"""Which TCP port of the loopback address a server gets."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Collection

HOST = "127.0.0.1"

# Below the range from which kernels give ports to outgoing connections (from 32768, 49152 on macOS), or some
# client's connection could sit on a stopped stack's port when it comes back.
FALLBACK = range(20_000, 32_000)
PATIENCE_S = 1.0


def is_free(port: int) -> bool:
    """Whether nobody listens on the port, on the loopback address or on all of them."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen(1)
        except OSError:
            return False
    return not answers(port)


def _becomes_free(port: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def answers(port: int) -> bool:
    """Whether a connection to the port is accepted."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def choose(last: int | None, usual: int | None = None, *, taken: Collection[int | None] = ()) -> int:
    """The port of the last time, else the usual one, else one from the fallback range; `taken` are passed over.

    For the last one it waits a little: a server that was just killed may hold it still.
    """
    if last is not None and last not in taken and _becomes_free(last):
        return last
    if usual is not None and usual not in taken and is_free(usual):
        return usual
    while True:
        port = random.choice(FALLBACK)
        if port not in taken and is_free(port):
            return port
