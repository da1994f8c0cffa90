"""Which groups keep a topic from being grown."""

from __future__ import annotations

import pytest

from stream.errors import Refused
from stream.growing import Growth, Reader


def growth(*readers: Reader) -> Growth:
    return Growth("orders", 4, 6, 4, 0, readers)


def test_a_topic_without_anything_left_is_grown() -> None:
    growth().check()
    growth(Reader("email", 0, 0), Reader("stock", 0, 0)).check()


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        (Reader("email", 7, 0), "email (7 records, 0 parked keys)"),
        (Reader("email", 0, 2), "email (0 records, 2 parked keys)"),
        (Reader("email", None, 0), "email (nothing committed, 0 parked keys)"),
    ],
)
def test_a_group_with_something_left_is_named(reader: Reader, said: str) -> None:
    with pytest.raises(Refused) as refused:
        growth(Reader("stock", 0, 0), reader).check()
    assert said in refused.value.message
    assert "stock" not in refused.value.message
    assert refused.value.hint == "stream groups describe email"
