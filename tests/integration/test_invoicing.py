"""The group `invoicing` on a real database."""

import threading
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from stream.project import Project
from tests.support.application import Application, Given, a_cancellation, a_return
from tests.support.orders import an_order


@pytest.fixture
def invoicing(project: Project, database_url: str) -> Application:
    return Application("invoicing", project, database_url)


def a_line(**changes: Any) -> dict[str, Any]:
    [line] = an_order()["lines"]
    return {**line, **changes}


def invoices(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute(
        "select order_id, kind, number, total_minor, currency from invoice order by kind, number"
    ).fetchall()


def test_an_order_gets_an_invoice_with_a_pdf(invoicing: Application, conn: psycopg.Connection[Any]) -> None:
    [outcome] = invoicing.apply(Given("OrderPlaced", "536365", an_order(lines=2)))

    assert outcome.kind == "done"
    assert invoices(conn) == [("536365", "invoice", 1, 3060, "GBP")]
    [(document, issued_at)] = conn.execute("select document, issued_at from invoice").fetchall()
    assert document.startswith(b"%PDF-") and document.rstrip().endswith(b"%%EOF")

    [(type, key, data)] = invoicing.emitted()
    assert (type, key) == ("InvoiceIssued", "536365")
    assert data == {
        "order_id": "536365",
        "kind": "invoice",
        "number": 1,
        "total_minor": 3060,
        "currency": "GBP",
        "customer_id": "17850",
        "issued_at": issued_at,
    }


def test_lines_are_rounded_one_by_one_and_summed(
    invoicing: Application, conn: psycopg.Connection[Any]
) -> None:
    lines = [a_line(quantity=3, unit_price=Decimal("0.335"))] * 3  # 1.005 each
    invoicing.apply(
        Given("OrderPlaced", "pounds", an_order(currency="GBP") | {"lines": lines}),
        Given("OrderPlaced", "yen", an_order(currency="JPY") | {"lines": lines}),
        Given("OrderPlaced", "dinars", an_order(currency="KWD") | {"lines": lines}),
    )

    assert [(id, total) for id, _, _, total, _ in invoices(conn)] == [
        ("pounds", 303),
        ("yen", 3),
        ("dinars", 3015),
    ]


def test_postage_is_charged_and_gifts_are_not(invoicing: Application, conn: psycopg.Connection[Any]) -> None:
    lines = [
        a_line(),
        a_line(sku="POST", quantity=1, unit_price=Decimal(18), service=True),
        a_line(sku="GIFT", unit_price=Decimal(0)),
        a_line(sku="B", unit_price=Decimal(-50)),
    ]
    invoicing.apply(Given("OrderPlaced", "1", an_order(lines=0) | {"lines": lines}))

    assert invoices(conn) == [("1", "invoice", 1, 3330, "GBP")]


def test_an_order_without_any_charged_line_is_skipped(
    invoicing: Application, conn: psycopg.Connection[Any]
) -> None:
    gift = an_order() | {"lines": [a_line(unit_price=Decimal(0))]}

    outcomes = invoicing.apply(Given("OrderPlaced", "1", gift), Given("OrderPlaced", "2", an_order(lines=0)))

    assert [(outcome.kind, outcome.reason) for outcome in outcomes] == [("skipped", "nothing to charge")] * 2
    assert invoicing.emitted() == []
    assert invoices(conn) == []


def test_an_order_without_a_customer_has_an_invoice_without_one(invoicing: Application) -> None:
    invoicing.apply(Given("OrderPlaced", "1", an_order(customer_id=None)))

    assert invoicing.emitted()[0][2]["customer_id"] is None


def test_credit_notes_have_a_series_of_their_own(
    invoicing: Application, conn: psycopg.Connection[Any]
) -> None:
    invoicing.apply(
        Given("OrderPlaced", "1", an_order()),
        Given("OrderPlaced", "2", an_order()),
        Given("OrderCancelled", "2", a_cancellation(an_order())),
        Given("OrderReturned", "C3", a_return(an_order())),
        Given("OrderPlaced", "4", an_order()),
    )

    assert [(id, kind, number) for id, kind, number, _, _ in invoices(conn)] == [
        ("2", "credit_note", 1),
        ("C3", "credit_note", 2),
        ("1", "invoice", 1),
        ("2", "invoice", 2),
        ("4", "invoice", 3),
    ]


def test_a_failed_invoice_leaves_no_gap(invoicing: Application, conn: psycopg.Connection[Any]) -> None:
    huge = an_order() | {"lines": [a_line(quantity=2**31 - 1, unit_price=Decimal("99999999999999"))]}
    given = [Given("OrderPlaced", str(n), huge if n % 4 == 2 else an_order()) for n in range(12)]

    outcomes = invoicing.apply(*given)

    assert [outcome.kind for outcome in outcomes] == ["done", "done", "failed", "done"] * 3
    assert [number for _, _, number, _, _ in invoices(conn)] == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_applied_again_an_invoice_keeps_its_number(
    invoicing: Application, conn: psycopg.Connection[Any]
) -> None:
    event = Given("OrderPlaced", "1", an_order())
    invoicing.apply(event)
    invoicing.apply(Given("OrderPlaced", "2", an_order()))
    first = conn.execute("select * from invoice order by number").fetchall()
    invoicing.forget()

    invoicing.apply(event)
    invoicing.apply(Given("OrderPlaced", "3", an_order()))

    assert conn.execute("select * from invoice order by number").fetchall()[:2] == first
    assert [(id, number) for id, _, number, _, _ in invoices(conn)] == [("1", 1), ("2", 2), ("3", 3)]

    invoicing.forget()
    invoicing.apply(replace(event, data=an_order(lines=2)))  # what it says may have been repaired
    assert invoices(conn)[0] == ("1", "invoice", 1, 3060, "GBP")


def test_workers_that_issue_both_kinds_neither_deadlock_nor_leave_a_gap(
    invoicing: Application, conn: psycopg.Connection[Any]
) -> None:
    outcomes: list[str] = []

    def work(name: str, *, invoices_first: bool) -> None:
        for n in range(10):
            invoice = Given("OrderPlaced", f"{name}{n}", an_order())
            credit_note = Given("OrderReturned", f"C{name}{n}", a_return(an_order()))
            given = [invoice, credit_note] if invoices_first else [credit_note, invoice]
            outcomes.extend(outcome.kind for outcome in invoicing.apply(*given))

    workers = [
        threading.Thread(target=work, args=[name], kwargs={"invoices_first": name in "ac"}) for name in "abcd"
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert outcomes == ["done"] * 80
    for kind in ("invoice", "credit_note"):
        numbers = [number for _, found, number, _, _ in invoices(conn) if found == kind]
        assert numbers == list(range(1, 41))
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    assert conn.execute(deadlocks).fetchone() == (0,)
