"""Monitor: one port of a process, for whoever looks after it: /metrics, /livez and /readyz.

It stands beside the loops and only reads: what they count (meters.py), what they show of themselves (vitals.py), and
what a thread of its own asks broker and database now and then (readings.py). No answer here waits for any of them.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import structlog

from stream.config import Address, Config
from stream.errors import UsageError
from stream.exposition import Exposition
from stream.processor import Processor
from stream.readings import READ_EVERY_S, SlowClock
from stream.relay import Relay
from stream.vitals import Answer, GroupSigns, RelaySigns, alive, ready

log = structlog.get_logger("stream.monitor")

REQUEST_S = 5.0  # a client that says nothing for so long is hung up on
PATHS = ("/metrics", "/livez", "/readyz")


class Monitor:
    """Serves one process's groups, or its relay, at `address`, from `start` to `close`."""

    def __init__(
        self,
        config: Config,
        address: Address,
        *,
        groups: Sequence[Processor] = (),
        relay: Relay | None = None,
        read_every_s: float = READ_EVERY_S,
    ) -> None:
        self._groups = groups
        self._relay = relay
        self._address = address
        self._clock = SlowClock(config, self._of_groups, outbox=relay is not None, every_s=read_every_s)
        self._exposition = Exposition(
            lambda: [(processor.signs(), processor.meter) for processor in groups],
            lambda: None if relay is None else (relay.signs(), relay.meter),
            lambda: self._clock.last,
        )
        self._server: _Server | None = None

    def start(self) -> str:
        """Listen; returns the address, `http://127.0.0.1:8000`. Raises UsageError where it cannot be had."""
        host, port = self._address
        try:
            self._server = _Server((host, port), self.answer)
        except OSError as error:
            raise UsageError(
                f"metrics port: {host}:{port} cannot be used: {error.strerror or error}",
                hint=f"stream {self._command()} --metrics-port 0   (any free port)",
            ) from None
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        self._clock.start()
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self._server.server_address[1]}"

    def close(self) -> None:
        self._clock.stop()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Status, content type and body of a GET."""
        if path == "/metrics":
            body, content_type = self._exposition.encoded(accept)
            return 200, content_type, body
        if path == "/livez":
            return _json(alive(self._signs()))
        if path == "/readyz":
            readings = self._clock.last
            lags = {one.group: readings.lag(one.group) for one in self._of_groups()}
            return _json(ready(self._signs(), readings.down, lags))
        return 404, "text/plain; charset=utf-8", f"there are {', '.join(PATHS)}\n".encode()

    def _command(self) -> str:
        names = " ".join(f"--group {processor.group.name}" for processor in self._groups)
        return f"consume {names}" if names else "relay"

    def _of_groups(self) -> list[GroupSigns]:
        return [processor.signs() for processor in self._groups]

    def _signs(self) -> list[GroupSigns | RelaySigns]:
        return [*self._of_groups(), *([] if self._relay is None else [self._relay.signs()])]


def _json(answer: Answer) -> tuple[int, str, bytes]:
    body = json.dumps({"ok": answer.ok, "reasons": list(answer.reasons)}, ensure_ascii=False)
    return 200 if answer.ok else 503, "application/json", body.encode(errors="replace") + b"\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: Address, answer: Callable[[str, str], tuple[int, str, bytes]]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.answer = answer
        super().__init__(address, _Request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Who hangs up in the middle of an answer is no news; anything else is a mistake of ours."""
        error = sys.exception()
        if not isinstance(error, OSError):
            log.error("metrics.failed", error=f"{type(error).__name__}: {error}")


class _Request(BaseHTTPRequestHandler):
    timeout = REQUEST_S
    server: _Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        status, content_type, body = self.server.answer(path, self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def version_string(self) -> str:
        return "stream"

    def log_message(self, format: str, *args: object) -> None:
        """A scrape is no news."""
