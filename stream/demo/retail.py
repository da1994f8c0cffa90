"""Orders out of CSV files with the columns of the data set "Online Retail".

All files are read and checked before the first order is placed, so that a wrong one leaves nothing behind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from stream.demo.csvfile import Place, records
from stream.demo.orders import Kind, Line, Order
from stream.errors import UsageError

COLUMNS = (
    "InvoiceNo",
    "StockCode",
    "Description",
    "Quantity",
    "InvoiceDate",
    "UnitPrice",
    "CustomerID",
    "Country",
)
CURRENCY = "GBP"

INVOICE = re.compile(r"([A-Za-z]{0,10})[0-9]{1,20}")
QUANTITY = re.compile(r"[-+]?[0-9]{1,10}")
PRICE = re.compile(r"[-+]?[0-9]{1,14}(\.[0-9]{1,4}0*)?")
CUSTOMER = re.compile(r"([0-9]+)(\.0+)?")
INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Retail:
    """Orders in the order of their first rows, and how many rows were left out, by reason."""

    orders: list[Order]
    skipped: Counter[str]


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the invoice's columns and its line."""

    place: Place
    invoice: str
    customer_id: str | None
    country: str | None
    at: datetime
    line: Line


def read(path: Path) -> Retail:
    """All orders of a file, or of a folder's `*.csv` files in the order of their names; raises UsageError."""
    skipped: Counter[str] = Counter()
    invoices: dict[str, list[Row]] = {}
    for file in _files(path):
        for place, values in records(file, COLUMNS):
            invoice = values["InvoiceNo"]
            letters = _letters(place, invoice)
            if letters in ("", "C"):
                invoices.setdefault(invoice, []).append(_row(place, values, returned=letters == "C"))
            else:
                skipped[f"bookkeeping, {letters}"] += 1
    return Retail([order for rows in invoices.values() for order in _orders(rows)], skipped)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix.lower() == ".csv" and file.is_file())
        if not found:
            raise UsageError(f"{path}: expected files *.csv in this folder, found none")
        return found
    if not path.is_file():
        raise UsageError(f"{path}: expected a CSV file or a folder of them, found nothing there")
    return [path]


def _orders(rows: list[Row]) -> Iterator[Order]:
    """The order of one invoice; its corrections (negative quantities without a C) are a stock adjustment."""
    first = rows[0]
    for row in rows:
        _same(row, "CustomerID", row.customer_id, first.customer_id)
        _same(row, "Country", row.country, first.country)
    if first.invoice.startswith("C"):
        parts: list[tuple[Kind, Iterable[Line]]] = [("returned", (_returned(row.line) for row in rows))]
    else:
        parts = [
            ("placed", (row.line for row in rows if row.line.quantity > 0)),
            ("adjusted", (row.line for row in rows if row.line.quantity < 0)),
        ]
    at = min(row.at for row in rows)  # the minute may turn while an invoice is written
    for kind, part in parts:
        lines = tuple(part)
        if lines:
            yield Order(first.invoice, kind, first.customer_id, first.country, CURRENCY, at, lines)


def _same(row: Row, column: str, found: str | None, expected: str | None) -> None:
    if found != expected:
        row.place.wrong_value(column, f"{expected or 'nothing'}, as in the invoice's first row", found or "")


def _returned(line: Line) -> Line:
    return Line(line.sku, line.description, -line.quantity, line.unit_price)


# One row


def _letters(place: Place, text: str) -> str:
    """The letters before the number: none is an order, C a cancellation, others are bookkeeping."""
    match = INVOICE.fullmatch(text)
    if not match:
        place.wrong_value("InvoiceNo", "digits, with or without letters before them", text)
    return match[1]


def _row(place: Place, values: dict[str, str], *, returned: bool) -> Row:
    return Row(
        place=place,
        invoice=values["InvoiceNo"],
        customer_id=_customer(place, values["CustomerID"]),
        country=values["Country"] or None,
        at=_time(place, values["InvoiceDate"]),
        line=Line(
            sku=_sku(place, values["StockCode"]),
            description=values["Description"] or None,
            quantity=_quantity(place, values["Quantity"], returned=returned),
            unit_price=_price(place, values["UnitPrice"]),
        ),
    )


def _sku(place: Place, text: str) -> str:
    if not 0 < len(text) <= 100:
        place.wrong_value("StockCode", "a code of at most 100 characters", text)
    return text


def _quantity(place: Place, text: str, *, returned: bool) -> int:
    quantity = int(text) if QUANTITY.fullmatch(text) else 0
    if quantity == 0 or abs(quantity) > INT_MAX:
        place.wrong_value("Quantity", f"a whole number other than 0, at most {INT_MAX}", text)
    if returned and quantity > 0:
        place.wrong_value("Quantity", "a number below 0, as the invoice is a cancellation (C)", text)
    return quantity


def _price(place: Place, text: str) -> Decimal:
    if not PRICE.fullmatch(text):
        place.wrong_value("UnitPrice", "an amount with at most 4 decimals, such as 2.55", text)
    return Decimal(text)


def _customer(place: Place, text: str) -> str | None:
    if not text:
        return None
    match = CUSTOMER.fullmatch(text)
    if not match:
        place.wrong_value("CustomerID", "a whole number such as 17850 or 17850.0, or nothing", text)
    return match[1]


def _time(place: Place, text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        place.wrong_value("InvoiceDate", "a time such as 2010-12-01 08:26:00", text)
