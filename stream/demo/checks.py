"""The demo's statement: what the shop's own tables say must be there, held against what is there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stream.database import Connection
from stream.demo.provider import Mail
from stream.events import Record, event_id_of, header

# What has happened to an order of this kind and status, in order.
HISTORY = {
    ("placed", "placed"): ["OrderPlaced"],
    ("placed", "paid"): ["OrderPlaced", "OrderPaid"],
    ("placed", "shipped"): ["OrderPlaced", "OrderPaid", "OrderShipped"],
    ("placed", "cancelled"): ["OrderPlaced", "OrderCancelled"],
    ("placed", "returned"): ["OrderPlaced", "OrderPaid", "OrderShipped", "OrderReturned"],
    ("returned", "returned"): ["OrderReturned"],
    ("adjusted", "adjusted"): ["StockAdjusted"],
}

# Every document there must be, with its total in minor units: lines rounded one by one, half up, then summed.
DOCUMENTS = """
with charged as (
    select o.order_id, o.kind, o.status, o.customer_id, o.currency,
           sum(round(l.quantity * l.unit_price * 10 ^ decimals.n::numeric)) as total_minor
      from shop.customer_order o
      join shop.order_line l using (order_id, kind)
     cross join lateral (select case o.currency when 'JPY' then 0 when 'KWD' then 3 else 2 end as n) decimals
     where l.unit_price > 0 and o.kind <> 'adjusted'
     group by o.order_id, o.kind, o.status, o.customer_id, o.currency)
select order_id, 'invoice', customer_id, currency, total_minor::bigint from charged where kind = 'placed'
union all
select order_id, 'credit_note', customer_id, currency, total_minor::bigint from charged
 where kind = 'returned' or status in ('cancelled', 'returned')
"""

# What must be on hand: 1,000 of each, less what was sold and did not come back.
LEVELS = """
select l.sku, 1000 + sum(case
           when o.kind in ('returned', 'adjusted') then l.quantity
           when o.status in ('cancelled', 'returned') then 0
           else -l.quantity end)
  from shop.order_line l join shop.customer_order o using (order_id, kind)
 where not l.service
 group by l.sku
"""


@dataclass(frozen=True)
class Check:
    """One sentence of the statement, and whether it is so. `wrong` names a few of what is not."""

    name: str
    says: str
    wrong: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        return not self.wrong


def orders(conn: Connection, records: Mapping[tuple[str, int], Sequence[Record]]) -> Check:
    """Each order's events are in the topic, complete and in the order in which they happened."""
    seen: set[object] = set()
    happened: defaultdict[str, list[str]] = defaultdict(list)
    for (topic, _), part in records.items():
        for record in part if topic == "orders" else ():
            if event_id_of(record) not in seen:  # published twice after a crash is allowed
                seen.add(event_id_of(record))
                happened[(record.key or b"").decode()].append(str(header(record.headers, "ce_type")))
    expected: defaultdict[str, list[str]] = defaultdict(list)
    for order_id, kind, status in conn.execute(
        "select o.order_id, o.kind, o.status from shop.customer_order o where o.kind <> 'adjusted' or exists"
        " (select from shop.order_line l where l.order_id = o.order_id and l.kind = o.kind and not l.service)"
        " order by o.order_id, o.kind desc"
    ):
        expected[order_id] += HISTORY[kind, status]
    return Check(
        "orders",
        f"{len(expected):,} orders, {len(seen):,} events in the topic, each order's complete and in order",
        _differences(expected, happened),
    )


def invoices(conn: Connection) -> Check:
    """Every order that costs something has its documents, numbered without a gap, with the right total."""
    expected = {
        (order_id, kind): (currency, total) for order_id, kind, _, currency, total in conn.execute(DOCUMENTS)
    }
    found = {
        (order_id, kind): (currency, total)
        for order_id, kind, currency, total in conn.execute(
            "select order_id, kind, currency, total_minor from invoice where document like '%PDF-%'::bytea"
        )
    }
    wrong = _differences(expected, found)
    counts = []
    for kind, name in (("invoice", "invoices"), ("credit_note", "credit notes")):
        numbers = [
            number
            for (number,) in conn.execute(
                "select number from invoice where kind = %s order by number", [kind]
            )
        ]
        counts.append(f"{name} 1 to {len(numbers):,}" if numbers else f"no {name}")
        if numbers != list(range(1, len(numbers) + 1)):
            wrong.append(f"the numbers of the {name} are not 1 to {len(numbers)} without a gap")
    return Check("invoices", f"{' and '.join(counts)} without a gap, each total agrees with its order", wrong)


def mails(conn: Connection, received: Sequence[Mail], in_flight: Collection[str]) -> Check:
    """Every mail there must be has come once. `in_flight`: Message-IDs that may have come twice.

    They were with the provider when the worker was killed, and it could not note them any more.
    """
    expected: Counter[tuple[str, str]] = Counter()
    for order_id, kind, customer_id, _, _ in conn.execute(DOCUMENTS):
        if customer_id is not None:
            expected[order_id, kind] += 1
            if kind == "invoice":
                expected[order_id, "confirmation"] += 1
    ids = {
        id: (order_id, kind)
        for order_id, kind, id in conn.execute("select order_id, kind, message_id from mail")
    }
    came = Counter(mail.message_id for mail in received)
    twice = [id for id, times in came.items() if times == 2 and id in in_flight]
    once = Counter(ids.get(id, (id, "not noted")) for id in came)
    wrong = _differences(expected, once)
    wrong += [f"{ids.get(id)} came {n} times" for id, n in came.items() if n > 1 and id not in twice]
    says = f"{len(came):,} mails received, each once"
    if twice:
        says += (
            f", but {len(twice)} twice under the same Message-ID: the provider had them when the worker was"
            " killed, before it could note them"
        )
    return Check("mails", says, wrong)


def stock(conn: Connection) -> Check:
    """What is on hand is what was there less what was sold."""
    expected = {sku: int(on_hand) for sku, on_hand in conn.execute(LEVELS)}
    found: dict[str, int] = dict(conn.execute("select sku, on_hand from stock_level").fetchall())
    negative = sum(on_hand < 0 for on_hand in found.values())
    says = f"{len(found):,} articles, each at 1,000 less what was sold"
    return Check(
        "stock", says + (f" ({negative:,} below zero)" if negative else ""), _differences(expected, found)
    )


def _differences(expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> list[str]:
    """The first few keys on which the two disagree."""
    keys = [key for key in {*expected, *found} if expected.get(key) != found.get(key)]
    keys.sort(key=str)
    wrong = [
        f"{key}: expected {expected.get(key, 'nothing')}, found {found.get(key, 'nothing')}"
        for key in keys[:5]
    ]
    return [*wrong, f"and {len(keys) - 5} more"] if len(keys) > 5 else wrong
