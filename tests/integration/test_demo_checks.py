"""The demo's statement finds what is not so."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from stream import Outbox, database
from stream.demo import checks, makebelieve
from stream.demo.checks import Check
from stream.demo.placing import steps
from stream.demo.provider import Mail, MailProvider
from stream.demo.shop import Shop
from stream.events import Record, cloud_headers
from stream.project import Project
from tests.support.application import Application, Given

AT = datetime(2010, 12, 1, 8, 26, tzinfo=UTC)


@dataclass
class Finished:
    """A demo that is over, with all its effects, and what its checks say."""

    conn: database.Connection
    records: list[Record]
    mails: list[Mail]

    def wrong(self) -> dict[str, list[str]]:
        found: list[Check] = [
            checks.orders(self.conn, {("orders", 0): self.records}),
            checks.invoices(self.conn),
            checks.mails(self.conn, self.mails, ()),
            checks.stock(self.conn),
        ]
        return {check.name: list(check.wrong) for check in found if not check.ok}


@pytest.fixture
def finished(project: Project, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Finished]:
    """Thirty orders with all kinds of lives, applied by the three groups."""
    groups = {name: Application(name, project, database_url) for name in ("invoicing", "email", "stock")}
    conn = database.connect(database_url, application_name="test", autocommit=True)
    shop = Shop(conn, Outbox(project))
    for order, life in makebelieve.orders(30, seed=3, first_id=1001, at=AT):
        shop.place([order])
        for step in steps(shop, order, life):
            step()

    def published(topic: str) -> list[Given]:
        rows = conn.execute(
            "select type, convert_from(key, 'UTF8'), payload, time, event_id from stream.outbox"
            " where topic = %s order by id",
            [topic],
        )
        return [
            Given(type, key, project.codec.decode(payload)[1], time, id)
            for type, key, payload, time, id in rows
        ]

    orders = published("orders")
    with MailProvider() as provider:
        monkeypatch.setenv("STREAM_SMTP_URL", provider.url)
        for group in groups.values():
            group.apply(*orders)
        groups["email"].apply(*published("invoices"))
    records = [
        Record("orders", 0, n, event.key.encode(), b"", cloud_headers(str(event.id), event.type, AT), 0)
        for n, event in enumerate(orders)
    ]
    with conn:
        yield Finished(conn, records, provider.mails)


def test_when_all_is_so_nothing_is_wrong(finished: Finished) -> None:
    assert finished.wrong() == {}
    assert len(finished.mails) > 40


@pytest.mark.parametrize(
    ("damage", "check", "says"),
    [
        ("delete from invoice where number = 7 and kind = 'invoice'", "invoices", "found nothing"),
        ("update invoice set number = 99 where number = 7", "invoices", "without a gap"),
        ("update invoice set total_minor = total_minor + 1 where number = 1", "invoices", "expected ('"),
        ("update invoice set document = '' where number = 1", "invoices", "found nothing"),
        ("delete from mail where kind = 'credit_note'", "mails", "found nothing"),
        ("update stock_level set on_hand = on_hand - 1 where sku = '22423'", "stock", "22423: expected"),
        ("delete from stock_level where sku = '22423'", "stock", "found nothing"),
        (
            "update shop.customer_order set status = 'paid' where order_id = '1001'",
            "orders",
            "1001: expected",
        ),
    ],
)
def test_what_is_missing_or_different_is_named(
    finished: Finished, damage: str, check: str, says: str
) -> None:
    finished.conn.execute(damage.encode())

    assert says in "\n".join(finished.wrong()[check])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda records: records[:-1], "expected"),
        (lambda records: [*records[1:], records[0]], "expected"),
        (
            lambda records: [*records, replace(records[0], headers=cloud_headers("x", "OrderPaid", AT))],
            "found",
        ),
    ],
)
def test_events_that_are_missing_out_of_order_or_too_many_are_named(
    finished: Finished, damage: Callable[[list[Record]], list[Record]], says: str
) -> None:
    key = finished.records[-1].key  # an order with more than one event
    finished.records = damage([record for record in finished.records if record.key == key]) + [
        record for record in finished.records if record.key != key
    ]

    assert says in "\n".join(finished.wrong()["orders"])


def test_an_event_published_twice_is_no_mistake(finished: Finished) -> None:
    finished.records.append(replace(finished.records[0], offset=999))

    assert finished.wrong() == {}


def test_a_mail_that_came_twice_is_wrong_unless_it_was_in_flight_at_the_kill(finished: Finished) -> None:
    twice = finished.mails[5]
    finished.mails.append(twice)
    assert "came 2 times" in finished.wrong()["mails"][0]

    check = checks.mails(finished.conn, finished.mails, {twice.message_id})
    assert check.ok
    assert "but 1 twice under the same Message-ID" in check.says

    finished.mails.append(twice)
    assert not checks.mails(finished.conn, finished.mails, {twice.message_id}).ok


def test_a_mail_that_did_not_come_is_wrong(finished: Finished) -> None:
    del finished.mails[3]

    assert "found nothing" in finished.wrong()["mails"][0]
