"""Operator actions: what people change by hand, alone on its key, and written down in the transaction that does it."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from psycopg import errors as pg
from psycopg.types.json import Jsonb

from stream.database import Connection, query
from stream.errors import Refused

T = TypeVar("T")

LOCK_TIMEOUT = "10s"
DEADLOCKS = 5  # so often an act is begun anew that PostgreSQL ended for another to go on


def alone(connection: Connection, lane: int, name: str, act: Callable[[], T], *, hint: str) -> T:
    """Run `act` in a transaction that holds the lock of a parked lane (parking.lane_number).

    The lane's lock comes first, as for a worker that wakes it; the append lock of the key, which the record for the
    retry topic needs, after it, as in settlement.py. So two people and a worker wait for each other in one order; only
    a handler that appends by itself can turn it round. Where a lock is not to be had: Refused, with `name` and `hint`.
    """
    for left in reversed(range(DEADLOCKS)):
        try:
            with connection.transaction():
                connection.execute("select set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
                connection.execute(query("lock_lanes"), {"lanes": [lane]})
                return act()
        except pg.LockNotAvailable:
            break
        except pg.DeadlockDetected:
            if not left:
                break
    raise Refused(
        f"{name}: a transaction that works on this key did not end within {LOCK_TIMEOUT}", hint=hint
    )


def leave_live_head(connection: Connection, group: str, lane: int) -> None:
    """To be called in such an act once the lane's lowest row has changed."""
    connection.execute(query("leave_live_heads"), {"group": group, "lanes": [lane]})


def write_action(
    connection: Connection,
    action: str,
    target: str,
    result: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    reason: str | None = None,
) -> None:
    """One row of stream.operator_action, in the caller's transaction."""
    connection.execute(
        query("write_operator_action"),
        {
            "who": who(),
            "action": action,
            "target": target,
            "parameters": Jsonb(parameters or {}),
            "result": result,
            "reason": reason,
        },
    )


def who() -> str:
    """`user@host` of this process."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
