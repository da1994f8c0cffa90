"""Real Kafka and real PostgreSQL for one project, on this machine, without Docker or an installation.

addresses = stack.up(project / ".stream", progress=print)
stack.down(project / ".stream")
"""

from __future__ import annotations

from pathlib import Path

from stream.stack.lifecycle import (
    Addresses,
    ServerStatus,
    down,
    processes,
    recorded_in,
    restart_postgres,
    running_in,
    status,
    up,
)

__all__ = [
    "FOLDER",
    "Addresses",
    "ServerStatus",
    "down",
    "processes",
    "recorded_in",
    "restart_postgres",
    "running",
    "running_in",
    "status",
    "up",
]

FOLDER = ".stream"


def running(project: Path) -> Addresses | None:
    """Addresses of the project's own stack where both of its servers run, else None. Asks neither of them."""
    return running_in(project / FOLDER)
