"""A CSV file with one wrong row, behind a good one, through the spawned command."""

from pathlib import Path
from typing import Any

import psycopg

from tests.support.processes import run

ROOT = Path(__file__).resolve().parents[2]
HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n"
HEART = "536365,85123A,WHITE HANGING HEART,6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom\n"


def test_a_wrong_csv_row_leaves_nothing_half_imported(
    environment: dict[str, str], tmp_path: Path, conn: psycopg.Connection[Any]
) -> None:
    (tmp_path / "1.csv").write_text(HEADER + HEART, encoding="utf-8")
    wrong = tmp_path / "2.csv"
    wrong.write_text(HEADER + HEART + HEART.replace(",6,", ",six,"), encoding="utf-8")

    placing = run("demo", "place", "--csv", str(tmp_path), env=environment, cwd=ROOT)

    assert placing.wait() == 2
    assert placing.stdout == ""
    assert placing.stderr.splitlines() == [
        f"Error: {wrong}:3: column Quantity: expected a whole number other than 0, at most 2147483647, found 'six'",
        "-> stream demo place --help",
    ]
    assert conn.execute("select count(*) from stream.outbox").fetchone() == (0,)
    assert conn.execute("select to_regclass('shop.customer_order')").fetchone() == (None,)

    # Mended, the same command places all of it, in one order.
    wrong.write_text(HEADER + HEART, encoding="utf-8")
    placing = run("demo", "place", "--csv", str(tmp_path), env=environment, cwd=ROOT)
    assert placing.wait() == 0
    assert placing.stdout == "1 orders, 0 returns and 0 stock adjustments placed; 0 were there already\n"
    assert conn.execute("select count(*) from shop.order_line").fetchone() == (2,)
