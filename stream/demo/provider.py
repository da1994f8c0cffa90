"""A mail provider to send to: real SMTP (aiosmtpd) on a loopback port, and what it accepted.

It can be told to refuse (`answer = "421 try later"`), to be slow (`delay`), and to be down (`stop`, `start`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from types import TracebackType
from typing import Any
from urllib.parse import quote

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

HOST = "127.0.0.1"
START_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail the provider accepted."""

    message_id: str
    recipients: tuple[str, ...]
    subject: str
    content: bytes


class MailProvider:
    """The provider. It serves on a thread of its own; everything here may be called from any thread.

    with MailProvider() as provider:
        ...                     # STREAM_SMTP_URL=provider.url
        provider.mails          # what was accepted, in order
    """

    def __init__(self, port: int = 0, *, login: tuple[str, str] | None = None) -> None:
        """`port` 0: a free one, kept over `stop` and `start`. `login`: the user and password it knows."""
        self.port = port
        self.answer: str | None = None  # given to every DATA instead of accepting it
        self.delay = 0.0  # seconds before the answer to DATA
        self._login = login
        # Called with every accepted mail before it is answered, on the provider's thread.
        self.on_mail: Callable[[Mail], None] | None = None
        self._lock = threading.Lock()
        self._mails: list[Mail] = []
        self._open: set[SMTP] = set()
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] = lambda: None

    @property
    def url(self) -> str:
        user = "{}:{}@".format(*(quote(part, safe="") for part in self._login)) if self._login else ""
        return f"smtp://{user}{HOST}:{self.port}"

    @property
    def mails(self) -> list[Mail]:
        with self._lock:
            return list(self._mails)

    def start(self) -> None:
        """Listen; raises OSError where the port is taken."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=[ready], name="mail-provider", daemon=True)
        self._thread.start()
        ready.result(timeout=START_TIMEOUT_S)

    def stop(self) -> None:
        """Be down: connections are cut off and refused. What was accepted is kept."""
        self._stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> MailProvider:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # aiosmtpd's hook: the mail is here; what we return is the provider's answer.
    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        await asyncio.sleep(self.delay)
        if self.answer is not None:
            return self.answer
        content = envelope.content if isinstance(envelope.content, bytes) else b""
        headers = BytesHeaderParser().parsebytes(content, headersonly=True)
        mail = Mail(
            message_id=str(headers["Message-ID"]),
            recipients=tuple(envelope.rcpt_tos),
            subject=str(headers["Subject"]),
            content=content,
        )
        with self._lock:
            self._mails.append(mail)
        if self.on_mail is not None:
            self.on_mail(mail)
        return "250 accepted"

    def _run(self, ready: Future[None]) -> None:
        try:
            asyncio.run(self._serve(ready))
        except OSError as error:
            ready.set_exception(error)

    async def _serve(self, ready: Future[None]) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await loop.create_server(self._connection, HOST, self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        ready.set_result(None)
        await stopped.wait()
        self._stop = lambda: None
        # A connection accepted while its server closes is never closed by asyncio: first accept no more, cut off
        # what there is (after one turn of the loop all of it is in `_open`), then close.
        for listener in server.sockets:
            loop.remove_reader(listener.fileno())
        await asyncio.sleep(0)
        while self._open:
            for connection in self._open:
                if isinstance(connection.transport, asyncio.WriteTransport):
                    connection.transport.abort()
            await asyncio.sleep(0)
        server.close()

    def _connection(self) -> SMTP:
        options: dict[str, Any] = {"enable_SMTPUTF8": True, "hostname": "localhost"}
        if self._login is not None:
            options |= {"authenticator": self._allowed, "auth_require_tls": False}
        connection = _Connection(self, self._open, **options)
        self._open.add(connection)
        return connection

    def _allowed(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object
    ) -> AuthResult:
        given = (data.login.decode(), data.password.decode()) if isinstance(data, LoginPassword) else None
        return AuthResult(success=given == self._login, handled=False)


class _Connection(SMTP):
    """A client's connection, in `open` until its socket is closed: `stop` cuts off every one of them."""

    def __init__(self, handler: MailProvider, open: set[SMTP], **options: Any) -> None:
        super().__init__(handler, **options)
        self._open = open

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._open.discard(self)
