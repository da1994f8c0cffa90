"""Operator actions: what people changed by hand, written down in the transaction that changes it."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from stream.database import Connection, query


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
