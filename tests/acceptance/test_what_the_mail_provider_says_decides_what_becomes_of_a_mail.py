"""A provider that is busy, hangs up or is too slow is asked again; a mail it refuses is dead at once, and the next
mail of that key goes out."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session

from stream import Outbox
from stream.demo.provider import MailProvider
from stream.project import Project
from tests.support.orders import an_order
from tests.support.processes import Command, run
from tests.support.waiting import until

pytestmark = pytest.mark.soak

ROOT = Path(__file__).resolve().parents[2]
SMTP_TIMEOUT_S = 0.5
ASKED_AGAIN = ("busy", "hangs up", "too slow")
REFUSED = ("no such mailbox", "no such mail")


class Moody(MailProvider):
    """Treats a recipient as its name says, twice (who is refused, once), and accepts after that."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if mood_of(address) == "no such mailbox":
            self.asked["no such mailbox"] += 1
            if self.asked["no such mailbox"] == 1:
                return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 well"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        mood = mood_of(envelope.rcpt_tos[0])
        if mood != "no such mailbox":
            self.asked[mood] += 1
        if mood == "no such mail" and self.asked[mood] == 1:
            return "550 we do not want this"
        if mood in ASKED_AGAIN and self.asked[mood] <= 2:
            if mood == "hangs up":
                assert isinstance(server.transport, asyncio.WriteTransport)
                server.transport.abort()
            await asyncio.sleep(0 if mood == "busy" else 3 * SMTP_TIMEOUT_S)
            return "421 try later"
        return await super().handle_DATA(server, session, envelope)


def mood_of(address: str) -> str:
    return address.partition("@")[0].replace(".", " ")


@pytest.mark.timeout(90)
def test_what_the_mail_provider_says_decides_what_becomes_of_a_mail(
    tmp_path: Path, environment: dict[str, str], project: Project, conn: psycopg.Connection[Any]
) -> None:
    shop = tmp_path / "shop"
    for folder in ("schemas", "consumers"):
        shutil.copytree(ROOT / folder, shop / folder)
    email = shop / "consumers" / "email.py"
    email.write_text(email.read_text().replace("SMTP_TIMEOUT_S = 20.0", f"SMTP_TIMEOUT_S = {SMTP_TIMEOUT_S}"))
    assert run("migrate", env=environment, cwd=shop).wait() == 0

    outbox = Outbox(project)
    moods = ("well", *ASKED_AGAIN, *REFUSED)
    placed: dict[str, list[str]] = {}
    for mood in moods:
        address = mood.replace(" ", ".") + "@example.com"
        conn.execute("insert into shop.customer values (%s, %s)", [mood, address])
        placed[mood] = [
            str(outbox.append(conn, "OrderPlaced", key=mood, data=an_order(customer_id=mood)))
            for _ in range(2)
        ]
    conn.commit()

    relay = Command("relay", env=environment, cwd=shop)
    with Moody() as provider:
        scaled = {**environment, "STREAM_TIME_SCALE": "0.05", "STREAM_SMTP_URL": provider.url}
        group = Command("consume", "--group", "email", env=scaled, cwd=shop)
        until(
            lambda: conn.rollback() or conn.execute("select count(*) from mail").fetchone() == (10,),
            60,
            lambda: group.stderr[-3000:],
        )
        assert group.stop() == 0
        assert relay.stop() == 0

    sent: dict[str, list[str]] = {}
    for mail in provider.mails:
        sent.setdefault(mood_of(mail.recipients[0]), []).append(mail.message_id[1:].partition("@")[0])
    assert sent == {mood: ids[1:] if mood in REFUSED else ids for mood, ids in placed.items()}
    asked = {mood: 2 + 2 * (mood in ASKED_AGAIN) for mood in moods}
    assert provider.asked == asked
    letters = conn.execute(
        "select convert_from(key, 'UTF8'), event_id::text, kind, attempts, error_class from stream.dead_letter"
    ).fetchall()
    assert sorted(letters) == [
        ("no such mail", placed["no such mail"][0], "permanent", 1, "smtplib.SMTPDataError"),
        ("no such mailbox", placed["no such mailbox"][0], "permanent", 1, "smtplib.SMTPRecipientsRefused"),
    ]
