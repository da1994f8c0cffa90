"""The real orders, read from their CSV files by the tests themselves: what must become of each row.

Nothing of the product's own reading is used here, or a mistake in it would be in both.
"""

from __future__ import annotations

import csv
import os
import random
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "STREAM_RETAIL_DIR"
SERVICES = {"POST", "DOT", "D", "M", "S", "PADS", "CRUK", "AMAZONFEE", "BANK CHARGES", "B"}


def folder(made: Path) -> tuple[Path, bool]:
    """The twenty real files, and True; where they are not to be had, files of the same shape written to `made`.

    With the variable set, the real ones must be there: a wrong path is a failure.
    """
    given = os.environ.get(VARIABLE)
    path = Path(given) if given else ROOT.parent / "shared" / "data" / "online-retail"
    if len(list(path.glob("*.csv"))) == 20:
        return path, True
    if given:
        pytest.fail(f"{VARIABLE}: expected the 20 files of the data set Online Retail in {path}")
    _make_up(made)
    return made, False


def _make_up(folder: Path, days: int = 5, invoices: int = 60) -> None:
    """As messy as the real ones: returns, corrections, services, gifts, no customer, other spellings."""
    chance = random.Random(1)
    header = [
        "InvoiceNo",
        "StockCode",
        "Description",
        "Quantity",
        "InvoiceDate",
        "UnitPrice",
        "CustomerID",
        "Country",
    ]
    folder.mkdir(parents=True, exist_ok=True)
    for day in range(days):
        rows = []
        for n in range(invoices):
            kind = chance.choices(["", "C", "-"], [80, 15, 5])[0]
            number = f"{'C' if kind == 'C' else ''}{536365 + day * invoices + n}"
            customer = "" if kind == "-" or chance.random() < 0.2 else f"{chance.randint(12000, 18000)}.0"
            skus = chance.sample(range(400), chance.randint(1, 30))
            for sku in skus:
                quantity = chance.randint(1, 500 if sku < 20 else 50) * (-1 if kind else 1)
                price = (
                    0 if kind == "-" or chance.random() < 0.03 else Decimal(chance.randint(1, 9999)) / 1000
                )
                code = (
                    chance.choice(sorted(SERVICES))
                    if kind == "" and chance.random() < 0.02
                    else f"{22000 + sku}A"
                )
                rows.append(
                    [
                        number,
                        code,
                        f"ARTICLE {sku}, RED",
                        quantity,
                        f"2010-12-{day + 1:02} 08:26:00",
                        price,
                        customer,
                        "United Kingdom",
                    ]
                )
        with (folder / f"2010-12-{day + 1:02}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\r\n" if day % 2 else "\n").writerows([header, *rows])


class Expected:
    """What the rows of the files say must be there in the end."""

    def __init__(self, path: Path) -> None:
        invoices: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
        for file in sorted(path.glob("*.csv")):
            with file.open(encoding="utf-8", newline="") as rows:
                for row in csv.DictReader(rows):
                    invoices[row["InvoiceNo"]].append(row)
        self.lines = sum(map(len, invoices.values()))
        self.kinds: Counter[str] = Counter()  # of orders
        self.totals: dict[tuple[str, str], int] = {}  # (order, kind of document) -> pence
        self.mails: dict[tuple[str, str], str] = {}  # (order, kind of mail) -> recipient
        self.levels: defaultdict[str, int] = defaultdict(lambda: 1000)
        self.skipped: Counter[tuple[str, str]] = Counter()  # (group, reason)
        for number, rows in invoices.items():
            self._invoice(number, rows)

    def _invoice(self, number: str, rows: list[dict[str, str]]) -> None:
        customer = rows[0]["CustomerID"].split(".")[0]
        corrections = not number.startswith("C") and all(row["Quantity"].startswith("-") for row in rows)
        for row in rows:
            if row["StockCode"] not in SERVICES:
                taken = int(row["Quantity"])  # negative where goods come back
                self.levels[row["StockCode"]] += taken if corrections else -taken
        if corrections:
            self.kinds["adjusted"] += 1
            return
        self.kinds["returned" if number.startswith("C") else "placed"] += 1
        kind = "credit_note" if number.startswith("C") else "invoice"
        pence = [
            # half up, with whole numbers only: prices have at most four decimals
            (abs(int(row["Quantity"])) * int(Decimal(row["UnitPrice"]) * 10000) + 50) // 100
            for row in rows
            if Decimal(row["UnitPrice"]) > 0
        ]
        if not pence:
            self.skipped["invoicing", "nothing to charge"] += 1
        else:
            self.totals[number, kind] = sum(pence)
        recipient = f"customer-{customer}@example.com"
        if kind == "invoice":
            if not customer:
                self.skipped["email", "no customer"] += 1
            elif not pence:
                self.skipped["email", "nothing to charge"] += 1
            else:
                self.mails[number, "confirmation"] = recipient
        if pence:
            if customer:
                self.mails[number, kind] = recipient
            else:
                self.skipped["email", "no customer"] += 1
