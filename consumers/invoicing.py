"""Invoicing: a numbered invoice with its PDF for every order placed, a credit note for what comes back.

Numbers run 1, 2, 3 ... without a gap per kind: the counter's row is locked until the batch commits.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from consumers._documents import PrintedLine, render
from consumers._money import line_total
from stream import ConsumerGroup, Context, Event, PermanentError

# Only ctx.db is touched, so many events share a transaction. An order whose invoice fails waits; no other does.
group = ConsumerGroup("invoicing", topics=["orders"], start="beginning", batch=500, on_dead="hold")

BIGINT_MAX = 2**63 - 1

# Both rows, always in this order: two workers that meet cannot deadlock.
LOCK_COUNTERS = "select from invoice_counter order by kind for update"

# An order that has its document keeps the number; only a new row takes one.
NUMBER = """
with taken as (
    update invoice_counter set last = last + 1
     where kind = %(kind)s
       and not exists (select from invoice where order_id = %(order_id)s and kind = %(kind)s)
    returning last)
select last from taken
union all
select number from invoice where order_id = %(order_id)s and kind = %(kind)s
"""

STORE = """
insert into invoice (order_id, kind, number, total_minor, currency, issued_at, document)
values (%(order_id)s, %(kind)s, %(number)s, %(total_minor)s, %(currency)s, %(issued_at)s, %(document)s)
on conflict (order_id, kind) do update
   set total_minor = excluded.total_minor, currency = excluded.currency,
       issued_at = excluded.issued_at, document = excluded.document
"""


@group.on("OrderPlaced")
def issue_invoice(event: Event, ctx: Context) -> None:
    issue("invoice", event, ctx)


@group.on("OrderCancelled", "OrderReturned")
def issue_credit_note(event: Event, ctx: Context) -> None:
    issue("credit_note", event, ctx)


def issue(kind: str, event: Event, ctx: Context) -> None:
    if event.key is None:
        raise PermanentError("an event without a key is of no order")
    order, currency = event.data, event.data["currency"]
    lines = charged(order["lines"], currency)
    if not lines:
        return ctx.skip("nothing to charge")
    total_minor = sum(line.total for line in lines)
    if total_minor > BIGINT_MAX:
        raise PermanentError(f"the total of {total_minor} minor units is no amount of money")

    ctx.db.execute(LOCK_COUNTERS)
    row = ctx.db.execute(NUMBER, {"kind": kind, "order_id": event.key}).fetchone()
    assert row is not None  # the counter has a row for either kind
    document = {
        "order_id": event.key,
        "kind": kind,
        "number": row[0],
        "total_minor": total_minor,
        "currency": currency,
        "issued_at": event.time,
    }
    pdf = render(kind, row[0], event.key, order["customer_id"], event.time, currency, lines)
    ctx.db.execute(STORE, {**document, "document": pdf})
    ctx.emit("InvoiceIssued", key=event.key, data={**document, "customer_id": order["customer_id"]})


def charged(lines: Sequence[Mapping[str, Any]], currency: str) -> list[PrintedLine]:
    """The lines that cost something; gifts (price 0 or less) are neither charged nor printed."""
    return [
        PrintedLine(
            line["sku"],
            line["description"] or "",
            line["quantity"],
            line["unit_price"],
            line_total(line["quantity"], line["unit_price"], currency),
        )
        for line in lines
        if line["unit_price"] > Decimal(0)
    ]
