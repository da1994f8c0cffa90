from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers._money import amount, decimals, line_total


@pytest.mark.parametrize(
    ("quantity", "price", "currency", "minor"),
    [
        (3, "0.335", "GBP", 101),  # 1.005: half goes up
        (1, "0.005", "GBP", 1),
        (1, "0.0049", "GBP", 0),
        (6, "2.55", "GBP", 1530),
        (1, "2.675", "EUR", 268),  # 2.67 where it is counted in binary fractions, or half to even
        (3, "0.5", "JPY", 2),  # no decimals
        (1, "0.4999", "JPY", 0),
        (7, "1200", "JPY", 8400),
        (3, "0.3335", "KWD", 1001),  # three decimals
        (1, "0.0005", "TND", 1),
        (2**31 - 1, "99999999999999.9999", "GBP", 21474836469999999978525164),
    ],
)
def test_a_line_is_rounded_half_up_to_the_minor_unit_of_its_currency(
    quantity: int, price: str, currency: str, minor: int
) -> None:
    assert line_total(quantity, Decimal(price), currency) == minor


@given(
    st.integers(1, 2**31 - 1),
    st.decimals(0, 99999999999999, places=4),
    st.sampled_from(["GBP", "JPY", "KWD", "CLF"]),
)
def test_a_line_total_is_the_whole_number_of_minor_units_nearest_to_the_exact_amount(
    quantity: int, price: Decimal, currency: str
) -> None:
    exact_10000ths = quantity * int(price.scaleb(4))
    unit = 10 ** (4 - decimals(currency))  # one minor unit, in 10,000ths

    off = line_total(quantity, price, currency) * unit - exact_10000ths

    assert -unit < 2 * off <= unit  # a half goes up


@pytest.mark.parametrize(
    ("minor", "currency", "text"),
    [(123456, "GBP", "1,234.56"), (5, "GBP", "0.05"), (1500, "JPY", "1,500"), (1001, "KWD", "1.001")],
)
def test_an_amount_is_shown_with_the_decimals_of_its_currency(minor: int, currency: str, text: str) -> None:
    assert amount(minor, currency) == text
