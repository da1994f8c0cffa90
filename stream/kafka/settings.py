"""What every client of this process is made with, and how names are prefixed on a shared cluster."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import structlog
from confluent_kafka import KafkaError

from stream.config import Config

log = structlog.get_logger("stream.kafka")

# A hung leader otherwise stalls a client for a minute (socket.timeout.ms is 60 s).
SOCKET_TIMEOUT_MS = 5000


def client_settings(config: Config, client_id: str) -> dict[str, Any]:
    """Settings shared by producers, consumers and admin clients; the user's own are allow-listed in Config."""
    return {
        "bootstrap.servers": config.bootstrap_servers,
        "client.id": config.prefix + client_id,
        "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 1000,
        "allow.auto.create.topics": False,
        "error_cb": ErrorLog(client_id),
        # librdkafka's own lines go to our log below warnings: error_cb tells what matters.
        "logger": logging.getLogger("stream.librdkafka"),
        **config.kafka,
    }


def looking_settings(config: Config, name: str) -> dict[str, Any]:
    """Of a consumer that reads past the groups: it belongs to none, commits nothing, and is told where a log ends."""
    return client_settings(config, name) | {
        "group.id": config.prefix + name,  # the client asks for one; it is never joined
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",  # retention may take the first records meanwhile
        "fetch.queue.backoff.ms": 10,  # a full queue is empty again soon: do not wait a second
    }


class ErrorLog:
    """Client errors, at most one line in ten seconds an error code: a broker that is down repeats it 20 times a second.

    Called from the thread that polls the client. Never raises: an exception would leave the client's callback.
    """

    REPEAT_S = 10.0

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._last: dict[int, float] = {}
        self._lock = threading.Lock()
        self.fatal: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.fatal = error
        now = time.monotonic()
        with self._lock:
            if now - self._last.get(error.code(), -self.REPEAT_S) < self.REPEAT_S:
                return
            self._last[error.code()] = now
        log.warning("kafka.error", client=self._client_id, code=error.name(), message=error.str())
