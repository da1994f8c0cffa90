"""The order event stream: what handlers and producers import.

Everything public is here; other modules may change without notice. A name's module is loaded when it is first used:
the command `stream` must meet a signal before anything slow is loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stream.context import Context
    from stream.errors import PermanentError, StopGroup, StreamError, TransientError
    from stream.events import Event
    from stream.groups import ConsumerGroup
    from stream.outbox import Outbox

__all__ = [
    "ConsumerGroup",
    "Context",
    "Event",
    "Outbox",
    "PermanentError",
    "StopGroup",
    "StreamError",
    "TransientError",
]

_HOMES = {
    "ConsumerGroup": "stream.groups",
    "Context": "stream.context",
    "Event": "stream.events",
    "Outbox": "stream.outbox",
    "PermanentError": "stream.errors",
    "StopGroup": "stream.errors",
    "StreamError": "stream.errors",
    "TransientError": "stream.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stream' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
