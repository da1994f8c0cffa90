"""E-mail: the order confirmation, and the invoice or credit note with its PDF, over SMTP.

Events carry a customer id and never an address: the address is read when the mail is sent, so that nothing
personal lies in topics, and a customer who is deleted gets no more mail.
"""

import os
import smtplib
import ssl
import threading
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate
from urllib.parse import unquote, urlsplit

from stream import ConsumerGroup, Context, Event, PermanentError, StopGroup

# This shop writes to everyone since its first order. A mail group that joins a running shop wants
# start="end", or its first start writes to every customer of the past.
# batch=1, the default: a sent mail cannot be rolled back with a neighbour's failure.
group = ConsumerGroup("email", topics=["orders", "invoices"], start="beginning", batch=1, on_reapply="skip")

SENDER = Address("The Shop", "orders", "shop.example")
SMTP_TIMEOUT_S = 20.0
TITLES = {"invoice": "Invoice", "credit_note": "Credit note"}


@group.on("OrderPlaced")
def confirm_order(event: Event, ctx: Context) -> None:
    order = event.data
    if order["customer_id"] is None:
        return ctx.skip("no customer")
    if not any(line["unit_price"] > 0 for line in order["lines"]):
        return ctx.skip("nothing to charge")
    message = EmailMessage()
    message["Subject"] = header_text(f"Your order {event.key}")
    lines = (f"{line['quantity']:>6} x {line['description'] or line['sku']}" for line in order["lines"])
    message.set_content(
        f"Thank you for your order of {order['placed_at']:%d %B %Y}.\n\n"
        + "\n".join(lines)
        + "\n\nThe invoice comes in a mail of its own.\n",
        cte="quoted-printable",
    )
    send(message, "confirmation", str(event.key), order["customer_id"], event, ctx)


@group.on("InvoiceIssued")
def send_invoice(event: Event, ctx: Context) -> None:
    issued = event.data
    if issued["customer_id"] is None:
        return ctx.skip("no customer")
    order_id, kind = issued["order_id"], issued["kind"]
    row = ctx.db.execute(
        "select document from invoice where order_id = %s and kind = %s", [order_id, kind]
    ).fetchone()
    if row is None:
        raise PermanentError(f"there is no {kind} of order {order_id}")
    title = f"{TITLES[kind]} {issued['number']}"
    message = EmailMessage()
    message["Subject"] = header_text(f"{title} for your order {order_id}")
    message.set_content(f"{title} is attached.\n")
    message.add_attachment(
        bytes(row[0]), maintype="application", subtype="pdf", filename=f"{kind}-{issued['number']}.pdf"
    )
    send(message, kind, order_id, issued["customer_id"], event, ctx)


def send(
    message: EmailMessage, kind: str, order_id: str, customer_id: str, event: Event, ctx: Context
) -> None:
    """Note the mail, then send it: what the database refuses is never sent.

    The Message-ID is made from the event's id. If the process dies between the provider's answer and the
    commit, the same mail goes out again under the same Message-ID, and the provider or reader can drop it.
    """
    customer = ctx.db.execute(
        "select email from shop.customer where customer_id = %s", [customer_id]
    ).fetchone()
    if customer is None:
        return ctx.skip("no address")
    message_id = f"<{event.id}@{SENDER.domain}>"
    message["Message-ID"] = message_id
    message["Date"] = formatdate(localtime=False)
    message["From"] = SENDER
    message["To"] = recipient(customer[0])
    ctx.db.execute(
        "insert into mail (order_id, kind, message_id) values (%s, %s, %s)"
        " on conflict (message_id) do update set sent_at = excluded.sent_at returning message_id",
        [order_id, kind, message_id],
    ).fetchone()  # waits for the answer
    deliver(message)


def recipient(email: str) -> Address:
    """Exactly one address, or PermanentError: what a customer typed must not become a second recipient."""
    try:
        address = Address(addr_spec=email)
    except (HeaderParseError, ValueError, IndexError):
        address = Address()
    if not (address.username and address.domain) or not email.isprintable() or "=?" in email:
        raise PermanentError("the customer's address is no e-mail address")
    return address


def header_text(text: str) -> str:
    """Text that stays inside its header, clamped.

    An encoded word such as `=?UTF-8?Q?=0A?=` is a line break once it is decoded (CVE-2024-6923), so none is
    left that could be; control characters go first, for they could hide one.
    """
    return "".join(filter(str.isprintable, text)).replace("=?", "= ?")[:200]


def deliver(message: EmailMessage) -> None:
    """Hand the message to the provider. What smtplib raises fails the event, which is then tried again."""
    smtp = _connection()
    try:
        smtp.send_message(message)
    except smtplib.SMTPNotSupportedError as error:  # an OSError, but no later try will help
        raise PermanentError(f"the mail provider cannot take this address: {error}") from error
    except BaseException:
        _open.smtp = None  # in an unknown state
        smtp.close()
        raise


_open = threading.local()  # one connection a worker thread, kept between mails


def _connection() -> smtplib.SMTP:
    smtp: smtplib.SMTP | None = getattr(_open, "smtp", None)
    if smtp is not None:
        try:
            if smtp.noop()[0] == 250:
                return smtp
        except OSError:
            pass  # the provider hung up on an idle connection
        smtp.close()
    _open.smtp = None
    _open.smtp = smtp = _connect(os.environ.get("STREAM_SMTP_URL", ""))
    return smtp


def _connect(url: str) -> smtplib.SMTP:
    parts = urlsplit(url)
    if parts.scheme != "smtp" or not parts.hostname:
        raise StopGroup(
            "STREAM_SMTP_URL must say where mail goes: smtp://[user:password@]host:port",
            hint="stream demo mail   (a provider on this machine, to try it)",
        )
    smtp = smtplib.SMTP(parts.hostname, parts.port or 25, timeout=SMTP_TIMEOUT_S)
    try:
        smtp.ehlo()
        if smtp.has_extn("starttls"):
            smtp.starttls(context=ssl.create_default_context())
            smtp.ehlo()
        elif parts.username is not None and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise StopGroup(
                f"the provider {parts.hostname} offers no TLS: the password would travel in the open"
            )
        if parts.username is not None:
            smtp.login(unquote(parts.username), unquote(parts.password or ""))
    except BaseException:
        smtp.close()
        raise
    return smtp
