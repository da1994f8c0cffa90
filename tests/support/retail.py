"""The real orders, read from their CSV files by the tests themselves: what must become of each row.

Nothing of the product's own reading is used here, or a mistake in it would be in both.
"""

from __future__ import annotations

import csv
import os
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "STREAM_RETAIL_DIR"
SERVICES = {"POST", "DOT", "D", "M", "S", "PADS", "CRUK", "AMAZONFEE", "BANK CHARGES", "B"}


def folder() -> Path:
    """Where the twenty files are; without them the test fails, it is not skipped."""
    path = Path(os.environ.get(VARIABLE) or ROOT.parent / "shared" / "data" / "online-retail")
    if len(list(path.glob("*.csv"))) != 20:
        pytest.fail(
            f"expected the 20 files of the data set Online Retail in {path}; set {VARIABLE} to their folder"
        )
    return path


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
