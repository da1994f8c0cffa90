"""The order event stream: what handlers and producers import.

Everything public is here; other modules may change without notice.
"""

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
