"""Logs on stderr: text on a terminal, one JSON object a line elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

# Without local variables, in either format: a handler's hold passwords and what customers wrote.
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _harmless(_logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What others wrote must not steer the terminal: control characters are escaped, a stack keeps its lines."""
    for name, value in line.items():
        if isinstance(value, str) and not value.isprintable():
            kept = "\n\t" if name in ("stack", "exception") else ""
            line[name] = "".join(
                c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in value
            )
    return line


def configure(level: str = "info", format: str | None = None) -> None:
    """Set up logging for this process; `format` is text, json, or None to choose by where stderr goes."""
    text = format == "text" or (format is None and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        if text
        else structlog.processors.JSONRenderer(default=str, ensure_ascii=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([_harmless] if text else [_TRACEBACKS]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    # librdkafka's own lines are repeated by error_cb; psycopg says "error ignored terminating Pipeline"
    # for a failure that is reported already.
    logging.getLogger("stream.librdkafka").setLevel(logging.CRITICAL)
    logging.getLogger("psycopg").setLevel(logging.ERROR)
