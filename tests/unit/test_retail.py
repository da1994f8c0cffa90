from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from stream.demo.orders import Line
from stream.demo.retail import read
from stream.errors import UsageError

HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"
HEART = "536365,85123A,WHITE HANGING HEART,6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom"
LANTERN = "536365,71053,WHITE METAL LANTERN,2,2010-12-01 08:27:00,3.39,17850.0,United Kingdom"


def a_file(folder: Path, *rows: str, header: str = HEADER, name: str = "day.csv") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8", newline="")
    return path


def complaint(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read(path)
    message = str(caught.value)
    assert "\n" not in message and "\r" not in message
    return message.removeprefix(f"{path}:")


def test_the_rows_of_an_invoice_are_one_order(tmp_path: Path) -> None:
    [order] = read(a_file(tmp_path, HEART, LANTERN)).orders

    assert (order.order_id, order.kind, order.customer_id) == ("536365", "placed", "17850")
    assert (order.country, order.currency) == ("United Kingdom", "GBP")
    assert order.at == datetime(2010, 12, 1, 8, 26, tzinfo=UTC)  # its first minute
    assert order.lines == (
        Line("85123A", "WHITE HANGING HEART", 6, Decimal("2.55")),
        Line("71053", "WHITE METAL LANTERN", 2, Decimal("3.39")),
    )


def test_rows_that_lie_apart_or_in_two_files_are_one_order(tmp_path: Path) -> None:
    a_file(tmp_path, HEART, HEART.replace("536365", "536366"), name="1.csv")
    a_file(tmp_path, LANTERN, name="2.CSV")

    orders = read(tmp_path).orders

    assert [(order.order_id, len(order.lines)) for order in orders] == [("536365", 2), ("536366", 1)]


def test_a_cancellation_is_a_return_with_positive_quantities(tmp_path: Path) -> None:
    [order] = read(a_file(tmp_path, HEART.replace("536365", "C536379").replace(",6,", ",-6,"))).orders

    assert (order.order_id, order.kind, order.lines[0].quantity) == ("C536379", "returned", 6)


def test_negative_quantities_without_a_c_are_a_stock_adjustment(tmp_path: Path) -> None:
    correction = "536589,21777,,-10,2010-12-01 16:50:00,0.0,,United Kingdom"

    [order] = read(a_file(tmp_path, correction)).orders

    assert (order.kind, order.customer_id) == ("adjusted", None)
    assert order.lines == (Line("21777", None, -10, Decimal("0.0")),)


def test_an_invoice_with_sold_and_corrected_lines_is_both(tmp_path: Path) -> None:
    orders = read(a_file(tmp_path, HEART, LANTERN.replace(",2,", ",-2,"))).orders

    assert [(order.order_id, order.kind, len(order.lines)) for order in orders] == [
        ("536365", "placed", 1),
        ("536365", "adjusted", 1),
    ]


def test_other_letters_are_bookkeeping_and_counted_by_reason(tmp_path: Path) -> None:
    bad_debt = "A563185,B,Adjust bad debt,1,2011-08-12 14:50:00,11062.06,,United Kingdom"

    retail = read(a_file(tmp_path, bad_debt, HEART, bad_debt, bad_debt.replace("A", "CA", 1)))

    assert [order.order_id for order in retail.orders] == ["536365"]
    assert retail.skipped == Counter({"bookkeeping, A": 2, "bookkeeping, CA": 1})


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_byte_order_mark_line_ends_and_column_order_do_not_matter(
    tmp_path: Path, mark: str, end: str
) -> None:
    path = tmp_path / "day.csv"
    columns = list(zip(HEADER.split(","), HEART.split(","), LANTERN.split(","), strict=True))
    rows = [",".join(row) for row in zip(*reversed(columns), strict=True)]
    path.write_text(mark + end.join(rows), encoding="utf-8", newline="")  # no line end at the end

    assert read(path).orders == read(a_file(tmp_path, HEART, LANTERN, name="other.csv")).orders


def test_quotes_commas_line_breaks_and_odd_separators_stay_in_their_value(tmp_path: Path) -> None:
    row = HEART.replace("WHITE HANGING HEART", '"HEART, ""WHITE""\nhanging \u2028 \x0b £ 日本"')

    [order] = read(a_file(tmp_path, row, LANTERN)).orders

    assert order.lines[0].description == 'HEART, "WHITE"\nhanging \u2028 \x0b £ 日本'
    assert len(order.lines) == 2


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (HEART.replace(",6,", ",six,"), "3: column Quantity: expected a whole number other than 0"),
        (HEART.replace(",6,", ",0,"), "3: column Quantity: expected a whole number other than 0"),
        (HEART.replace(",6,", ",9999999999,"), "3: column Quantity: expected a whole number other than 0"),
        (HEART.replace("536365", "C536365"), "3: column Quantity: expected a number below 0"),
        (HEART.replace("2.55", "2.55555"), "3: column UnitPrice: expected an amount with at most 4 decimals"),
        (HEART.replace("2.55", "NaN"), "3: column UnitPrice: expected an amount with at most 4 decimals"),
        (HEART.replace("2.55", "1e3"), "3: column UnitPrice: expected an amount with at most 4 decimals"),
        (HEART.replace("2010-12-01 08:26:00", "1/12/10"), "3: column InvoiceDate: expected a time such as"),
        (HEART.replace("2010-12-01", "2010-02-30"), "3: column InvoiceDate: expected a time such as"),
        (HEART.replace("536365", ""), "3: column InvoiceNo: expected digits, with or without letters"),
        (HEART.replace("536365", "53-6365"), "3: column InvoiceNo: expected digits, with or without letters"),
        (HEART.replace("85123A", " "), "3: column StockCode: expected a code of at most 100 characters"),
        (HEART.replace("17850.0", "x"), "3: column CustomerID: expected a whole number such as 17850"),
        (HEART.replace("17850.0", "17851"), "3: column CustomerID: expected 17850, as in the invoice"),
        (HEART.replace("United Kingdom", "France"), "3: column Country: expected United Kingdom, as in the"),
        (HEART.replace("HANGING", "\0"), "3: column Description: expected text without null characters"),
        (HEART.rpartition(",")[0], "3: column Country: expected 8 values in the row, found 7 values"),
        (HEART + ",more", "3: column Country: expected 8 values in the row, found 9 values"),
        (HEART.replace("WHITE", '"WHITE'), "3: column Description: expected a well-formed value"),
        (HEART.replace("WHITE H", '"WHITE" H'), "3: column Description: expected a well-formed value"),
        (HEART.replace(",6,", ",6\r,"), "3: column Quantity: expected lines that end in LF or CRLF"),
        (HEART.replace("WHITE", "W" * 200_000), "3: column Description: expected a well-formed value"),
    ],
)
def test_a_wrong_row_is_one_line_with_file_line_column_expected_and_found(
    tmp_path: Path, row: str, expected: str
) -> None:
    message = complaint(a_file(tmp_path, LANTERN, row, LANTERN))

    assert message.startswith(expected)
    assert ", found " in message
    assert len(message) < 300


def test_the_line_named_is_the_one_an_editor_shows(tmp_path: Path) -> None:
    multi_line = HEART.replace("WHITE HANGING HEART", '"WHITE\n\nHEART"')

    message = complaint(a_file(tmp_path, multi_line, "", LANTERN.replace(",2,", ",x,")))

    assert message.startswith("6: column Quantity")


def test_text_that_is_not_utf_8_is_named_by_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + f"{HEADER}\n{LANTERN}\n{HEART}".encode().replace(b"HANGING", b"\xa340"))

        assert complaint(path) == "3: column Description: expected UTF-8 text, found byte 0xa3"

    path.write_bytes(f"{HEADER}\n{HEART}".encode("utf-16"))
    assert complaint(path) == "1: column 1: expected UTF-8 text, found byte 0xff"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (HEADER.replace("UnitPrice", "Price"), "1: column UnitPrice: expected this column once"),
        (HEADER.replace("StockCode", "Quantity"), "1: column StockCode: expected this column once"),
        (HEADER + ",Country", "1: column Country: expected this column once"),
        (HEADER + ",Size", "1: column 'Size': expected only InvoiceNo,"),
        (HEADER.lower(), "1: column InvoiceNo: expected this column once"),
        ("", "1: column InvoiceNo: expected this column once, found nothing"),
    ],
)
def test_a_wrong_header_names_the_column(tmp_path: Path, header: str, expected: str) -> None:
    assert complaint(a_file(tmp_path, header=header)).startswith(expected)


def test_what_is_no_file_and_a_folder_without_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected a CSV file or a folder of them, found nothing there"):
        read(tmp_path / "missing.csv")
    with pytest.raises(UsageError, match=r"expected files \*\.csv in this folder, found none"):
        read(tmp_path)


def test_a_wrong_row_in_the_last_file_stops_the_first(tmp_path: Path) -> None:
    a_file(tmp_path, HEART, name="1.csv")
    wrong = a_file(tmp_path, LANTERN.replace(",2,", ",x,"), name="2.csv")

    with pytest.raises(UsageError, match=str(wrong)):
        read(tmp_path)
