"""The order event stream: what handlers and producers import.

Everything public is here; other modules may change without notice.
"""

from stream.errors import PermanentError, StopGroup, StreamError, TransientError
from stream.events import Event
from stream.outbox import Outbox

__all__ = [
    "Event",
    "Outbox",
    "PermanentError",
    "StopGroup",
    "StreamError",
    "TransientError",
]
