"""Which TCP port of the loopback address a server gets."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

HOST = "127.0.0.1"

# Below the range from which kernels give ports to outgoing connections (from 32768, 49152 on macOS), or some
# client's connection could sit on a stopped stack's port when it comes back.
FALLBACK = range(20_000, 32_000)


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


def answers(port: int) -> bool:
    """Whether a connection to the port is accepted."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def choose(*wanted: int | None, taken: Collection[int | None] = ()) -> int:
    """The first free port of `wanted`, else one from the fallback range; `taken` ones are passed over."""
    for port in wanted:
        if port is not None and port not in taken and is_free(port):
            return port
    while True:
        port = random.choice(FALLBACK)
        if port not in taken and is_free(port):
            return port
