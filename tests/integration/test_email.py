"""The group `email` on a real database, sending to a real SMTP server."""

import email
import email.policy
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from email.message import EmailMessage
from typing import Any, cast

import psycopg
import pytest

from stream.demo.provider import MailProvider
from stream.project import Project
from tests.support.application import Application, Given
from tests.support.orders import an_order

AT = datetime(2010, 12, 1, 8, 26, tzinfo=UTC)


@pytest.fixture
def provider() -> Iterator[MailProvider]:
    with MailProvider() as provider:
        yield provider


@pytest.fixture
def mailing(
    project: Project, database_url: str, provider: MailProvider, monkeypatch: pytest.MonkeyPatch
) -> Application:
    application = Application("email", project, database_url)
    monkeypatch.setenv("STREAM_SMTP_URL", provider.url)
    with psycopg.connect(database_url) as connection:
        connection.execute("insert into shop.customer values ('17850', 'customer-17850@example.com')")
    return application


def placed(key: str = "536365", **changes: Any) -> Given:
    return Given("OrderPlaced", key, an_order(**changes))


def issued(key: str = "536365", **changes: Any) -> Given:
    data = {
        "order_id": key,
        "kind": "invoice",
        "number": 17,
        "total_minor": 1530,
        "currency": "GBP",
        "customer_id": "17850",
        "issued_at": AT,
        **changes,
    }
    return Given("InvoiceIssued", key, data)


def parsed(provider: MailProvider) -> EmailMessage:
    [mail] = provider.mails
    return cast(EmailMessage, email.message_from_bytes(mail.content, policy=email.policy.default))


def mails(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    conn.rollback()
    return conn.execute("select order_id, kind, message_id from mail order by sent_at").fetchall()


def test_an_order_is_confirmed_to_its_customer(
    mailing: Application, provider: MailProvider, conn: psycopg.Connection[Any]
) -> None:
    order = placed()
    [outcome] = mailing.apply(order)

    assert outcome.kind == "done"
    message = parsed(provider)
    assert message["Subject"] == "Your order 536365"
    assert message["To"] == "customer-17850@example.com"
    assert message["Message-ID"] == f"<{order.id}@shop.example>"
    assert "6 x WHITE HANGING HEART" in message.get_content()
    assert mails(conn) == [("536365", "confirmation", f"<{order.id}@shop.example>")]


@pytest.mark.parametrize(
    ("kind", "subject"),
    [
        ("invoice", "Invoice 17 for your order 536365"),
        ("credit_note", "Credit note 17 for your order 536365"),
    ],
)
def test_an_invoice_goes_out_with_its_pdf(
    mailing: Application, provider: MailProvider, conn: psycopg.Connection[Any], kind: str, subject: str
) -> None:
    pdf = bytes(range(256)) * 9
    conn.execute("insert into invoice values ('536365', %s, 17, 1530, 'GBP', now(), %s)", [kind, pdf])
    conn.commit()

    event = issued(kind=kind)
    assert [outcome.kind for outcome in mailing.apply(event)] == ["done"]

    message = parsed(provider)
    assert message["Subject"] == subject
    [attachment] = list(message.iter_attachments())
    assert attachment.get_content_type() == "application/pdf"
    assert attachment.get_filename() == f"{kind}-17.pdf"
    assert attachment.get_payload(decode=True) == pdf
    assert mails(conn) == [("536365", kind, f"<{event.id}@shop.example>")]


def test_without_a_customer_a_charge_or_an_address_nothing_is_sent(
    mailing: Application, provider: MailProvider, conn: psycopg.Connection[Any]
) -> None:
    gift = placed("2")
    gift.data["lines"][0]["unit_price"] = Decimal(0)
    conn.execute("insert into invoice values ('5', 'invoice', 17, 1530, 'GBP', now(), '')")
    conn.commit()

    outcomes = mailing.apply(
        placed("1", customer_id=None),
        gift,
        placed("3", customer_id="stranger"),
        issued("4", customer_id=None),
        issued("5", customer_id="stranger"),
    )

    assert [(outcome.kind, outcome.reason) for outcome in outcomes] == [
        ("skipped", "no customer"),
        ("skipped", "nothing to charge"),
        ("skipped", "no address"),
        ("skipped", "no customer"),
        ("skipped", "no address"),
    ]
    assert provider.mails == []
    assert mails(conn) == []


def test_the_address_is_the_one_of_the_day_the_mail_is_sent(
    mailing: Application, provider: MailProvider, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("update shop.customer set email = 'moved@example.com'")
    conn.commit()
    mailing.apply(placed())

    assert provider.mails[0].recipients == ("moved@example.com",)


def test_a_mail_the_provider_does_not_take_is_not_noted_and_is_tried_again(
    mailing: Application, provider: MailProvider, conn: psycopg.Connection[Any]
) -> None:
    order = placed()
    provider.answer = "421 try later"
    [outcome] = mailing.apply(order)
    assert outcome.kind == "failed"
    assert mails(conn) == []

    provider.answer = None
    provider.stop()
    [outcome] = mailing.apply(order)
    assert outcome.kind == "failed"
    assert isinstance(outcome.error, OSError)

    provider.start()
    [outcome] = mailing.apply(order)
    assert outcome.kind == "done"
    assert [mail.message_id for mail in provider.mails] == [f"<{order.id}@shop.example>"]
    assert len(mails(conn)) == 1


def test_a_mail_sent_again_has_the_same_message_id(
    mailing: Application, provider: MailProvider, conn: psycopg.Connection[Any]
) -> None:
    order = placed()
    mailing.apply(order)
    mailing.forget()  # as if the process had died before its commit
    mailing.apply(order)

    assert [mail.message_id for mail in provider.mails] == [f"<{order.id}@shop.example>"] * 2
    assert len(mails(conn)) == 1


@pytest.mark.parametrize(
    "key",
    [
        "1\r\nBcc: thief@example.com",
        "1\n\nbody",
        "=?UTF-8?Q?1=0ABcc:_thief@example.com?=",
        "=\x00?UTF-8?Q?1=0D=0ABcc:_thief@example.com?=",
        "=?utf-8?b?MQ0KQmNjOiB0aGllZkBleGFtcGxlLmNvbQ==?=",
        "1\x85\u2028Bcc: thief@example.com",
    ],
)
def test_an_order_id_cannot_break_out_of_its_header(
    mailing: Application, provider: MailProvider, key: str, conn: psycopg.Connection[Any]
) -> None:
    order = placed(key.replace("\x00", "\x01"))
    [outcome] = mailing.apply(order)

    assert outcome.kind == "done"
    [mail] = provider.mails
    head, _, _ = mail.content.partition(b"\r\n\r\n")
    names = [line.split(b":")[0] for line in head.split(b"\r\n") if not line.startswith((b" ", b"\t"))]
    assert sorted(names) == sorted(
        [b"Subject", b"Content-Type", b"Content-Transfer-Encoding", b"MIME-Version", b"Message-ID", b"Date"]
        + [b"From", b"To"]
        + ([b"X-Peer"] if b"X-Peer" in names else [])
    )
    assert mail.recipients == ("customer-17850@example.com",)


@pytest.mark.parametrize(
    "address",
    [
        "a@example.com, thief@example.com",
        "a@example.com\r\nRCPT TO:<thief@example.com>",
        "a@example.com> NOTIFY=SUCCESS",
        "=?UTF-8?Q?a=0A?=@example.com",
        "example.com",
        "@example.com",
        "a@",
        "",
        "a b@example.com",
        "Thief <thief@example.com>",
    ],
)
def test_what_is_not_one_address_is_refused_for_good(
    mailing: Application, provider: MailProvider, conn: psycopg.Connection[Any], address: str
) -> None:
    conn.execute("update shop.customer set email = %s", [address])
    conn.commit()
    [outcome] = mailing.apply(placed())

    assert (outcome.kind, type(outcome.error).__name__) == ("failed", "PermanentError")
    assert "thief" not in str(outcome.reason)
    assert provider.mails == []


def test_a_login_is_used_and_its_password_never_shown(
    mailing: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MailProvider(login=("shop@x", "pa:ss/word")) as provider:
        monkeypatch.setenv("STREAM_SMTP_URL", provider.url)
        assert [outcome.kind for outcome in mailing.apply(placed("1"))] == ["done"]

        monkeypatch.setenv("STREAM_SMTP_URL", provider.url.replace("pa%3A", "no%3A"))
        provider.stop()  # the worker's open connection is let in already
        provider.start()
        [outcome] = mailing.apply(placed("2"))
        assert outcome.kind == "failed"
        assert "ss/w" not in f"{outcome.reason} {outcome.error!r}"
        assert len(provider.mails) == 1
