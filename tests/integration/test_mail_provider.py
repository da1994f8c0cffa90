"""The demo's mail provider, over real SMTP."""

import gc
import smtplib
import socket
import warnings
from email.message import EmailMessage

import pytest

from stream.demo.provider import Mail, MailProvider


def a_mail(id: str = "<1@shop.example>") -> EmailMessage:
    message = EmailMessage()
    message["Message-ID"], message["Subject"] = id, "Your order 536365"
    message["From"], message["To"] = "orders@shop.example", "customer-17850@example.com"
    message.set_content("Thank you.")
    return message


def send(
    provider: MailProvider,
    message: EmailMessage,
    login: tuple[str, str] | None = None,
    timeout: float = 10,
) -> None:
    with smtplib.SMTP("127.0.0.1", provider.port, timeout=timeout) as smtp:
        if login is not None:
            smtp.login(*login)
        smtp.send_message(message)


def test_it_keeps_what_it_accepted() -> None:
    told: list[Mail] = []
    with MailProvider() as provider:
        provider.on_mail = told.append
        send(provider, a_mail())

    [mail] = provider.mails
    assert told == [mail]
    assert (mail.message_id, mail.subject) == ("<1@shop.example>", "Your order 536365")
    assert mail.recipients == ("customer-17850@example.com",)
    assert mail.content.endswith(b"Thank you.\r\n")


def test_it_refuses_when_told_to() -> None:
    with MailProvider() as provider:
        provider.answer = "421 try later"
        with pytest.raises(smtplib.SMTPDataError) as refused:
            send(provider, a_mail())
        assert refused.value.smtp_code == 421

        provider.answer = None
        send(provider, a_mail("<2@shop.example>"))
    assert [mail.message_id for mail in provider.mails] == ["<2@shop.example>"]


def test_slow_it_answers_no_sooner_than_told() -> None:
    with MailProvider() as provider:
        provider.delay = 60
        with pytest.raises(smtplib.SMTPServerDisconnected, match="timed out"):
            send(provider, a_mail(), timeout=0.2)

    assert provider.mails == []


def test_down_it_cuts_off_and_refuses_and_comes_back_on_its_port() -> None:
    provider = MailProvider()
    provider.start()
    smtp = smtplib.SMTP("127.0.0.1", provider.port, timeout=10)
    provider.stop()
    try:
        with pytest.raises(OSError):
            smtp.noop()
    finally:
        smtp.close()
    with pytest.raises(ConnectionRefusedError):
        send(provider, a_mail())

    port = provider.port
    with provider:
        send(provider, a_mail())
    assert provider.port == port
    assert len(provider.mails) == 1


def test_it_knows_its_login() -> None:
    with MailProvider(login=("shop", "secret")) as provider:
        send(provider, a_mail(), ("shop", "secret"))
        with pytest.raises(smtplib.SMTPAuthenticationError):
            send(provider, a_mail(), ("shop", "wrong"))


def test_a_port_that_is_taken_is_said() -> None:
    with MailProvider() as provider, pytest.raises(OSError, match="in use"):
        MailProvider(provider.port).start()


def test_stopped_while_clients_come_it_leaves_no_socket_open() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(20):
            provider = MailProvider()
            provider.start()
            clients = [socket.socket() for _ in range(5)]
            for client in clients:
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", provider.port))
            provider.stop()
            for client in clients:
                client.close()
            gc.collect()
    assert [str(warning.message) for warning in warned if "unclosed" in str(warning.message)] == []
