import re
import time
from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from consumers._documents import PrintedLine, printable, render
from tests.support.pdf import text_of

ISSUED = datetime(2010, 12, 1, 8, 26, tzinfo=UTC)
HEART = PrintedLine("85123A", "WHITE HANGING HEART", 6, Decimal("2.5500"), 1530)


def test_an_invoice_shows_its_number_its_lines_and_their_sum() -> None:
    text = text_of(render("invoice", 17, "536365", "17850", ISSUED, "GBP", [HEART, HEART]))

    assert "INVOICE 17" in text
    assert re.search(r"Order +536365", text)
    assert re.search(r"Customer +17850", text)
    assert re.search(r"85123A +WHITE HANGING HEART +6 +2.55 +15.30", text)
    assert re.search(r"Total +30.60 GBP", text)


def test_a_credit_note_without_a_customer_names_none() -> None:
    text = text_of(render("credit_note", 3, "C536379", None, ISSUED, "GBP", [HEART]))

    assert "CREDIT NOTE 3" in text
    assert "Customer" not in text


def test_the_same_invoice_has_the_same_bytes() -> None:
    first, second = (render("invoice", 1, "536365", "17850", ISSUED, "GBP", [HEART]) for _ in range(2))

    assert first == second
    assert set(re.findall(rb"D:\d+", first)) == {b"D:20101201082600"}  # no time but the invoice's own


def test_an_order_of_675_lines_is_a_document_of_many_pages_made_at_once() -> None:
    begin = time.process_time()
    document = render("invoice", 1, "537434", None, ISSUED, "GBP", [HEART] * 675)

    assert time.process_time() - begin < 1
    assert document.count(b"/Type /Page\n") == 12
    assert text_of(document).count("WHITE HANGING HEART") == 675


@settings(deadline=None, max_examples=300)
@given(st.text(), st.text(max_size=20), st.text(max_size=5))
def test_any_text_prints(description: str, order_id: str, currency: str) -> None:
    line = PrintedLine(description, description, 1, Decimal("1"), 100)

    assert render("invoice", 1, order_id, order_id, ISSUED, currency, [line]).startswith(b"%PDF-")


def test_what_the_font_lacks_is_taken_apart_or_replaced() -> None:
    assert printable("£40 ünï €", 20) == "£40 ünï €"
    assert printable("Dvořák 日本\x1b[31m", 20) == "Dvorák ???[31m"
    assert printable("two\nlines (and) \\more", 40) == "two lines (and) \\more"
    assert printable("x" * 50, 10) == "x" * 10
