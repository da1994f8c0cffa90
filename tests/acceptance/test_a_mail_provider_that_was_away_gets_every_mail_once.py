"""The provider refuses, then is down, then is slow, then is well, while the e-mail group goes on by itself."""

from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from stream import Outbox
from stream.demo.provider import MailProvider
from stream.project import Project
from tests.support.orders import an_order
from tests.support.processes import Command, run
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
ORDERS = 12


def test_a_mail_provider_that_was_away_gets_every_mail_once(
    environment: dict[str, str], project: Project, conn: psycopg.Connection[Any]
) -> None:
    assert run("migrate", env=environment, cwd=ROOT).wait() == 0
    outbox = Outbox(project)
    conn.execute("insert into shop.customer values ('17850', 'customer-17850@example.com')")
    for n in range(ORDERS):
        outbox.append(conn, "OrderPlaced", key=f"{n}", data=an_order())
    conn.commit()
    environment = {**environment, "STREAM_TIME_SCALE": "0.1"}
    relay = Command("relay", env=environment, cwd=ROOT)

    with MailProvider() as provider:
        provider.answer = "421 try later"
        group = Command(
            "consume", "--group", "email", env={**environment, "STREAM_SMTP_URL": provider.url}, cwd=ROOT
        )
        group.says("try later")
        provider.stop()
        group.says("Connection refused")
        provider.answer, provider.delay = None, 0.2
        provider.start()

        until(
            lambda: len(provider.mails) >= ORDERS,
            60,
            lambda: f"{len(provider.mails)}\n{group.stderr[-3000:]}",
        )
        until(lambda: conn.execute("select count(*) from mail").fetchone() == (ORDERS,), 20)
        assert group.stop() == 0
        assert relay.stop() == 0

    assert conn.execute("select count(*) from stream.dead_letter").fetchone() == (0,)
    ids = [message_id for (message_id,) in conn.execute("select message_id from mail")]
    assert Counter(mail.message_id for mail in provider.mails) == Counter(ids)
