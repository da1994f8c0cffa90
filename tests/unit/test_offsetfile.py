"""Offsets as CSV: what is written is read again, and what is no such file says where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream import offsetfile
from stream.errors import UsageError

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1)
OFFSETS = st.dictionaries(st.tuples(NAMES, st.integers(0, 999)), st.integers(0, 10**15), min_size=1)


@given(OFFSETS, st.none() | NAMES)
def test_what_is_written_is_read_again(offsets: offsetfile.Offsets, group: str | None) -> None:
    assert offsetfile.parse(offsetfile.lines(offsets, group), "f.csv") == {group: offsets}


def test_lines_are_as_kafkas_tool_writes_them() -> None:
    assert offsetfile.lines({("orders", 1): 7, ("orders", 0): 12}) == "orders,0,12\norders,1,7\n"
    assert offsetfile.lines({("orders", 1): 7}, "stock") == "stock,orders,1,7\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected lines topic,partition,offset, got none"),
        ("orders,0\n", "line 1: expected topic,partition,offset"),
        ("orders,0,1\norders,1,x\n", "line 2: expected"),
        ("orders,0,-1\n", "line 1: expected"),
        ("orders,0,12345678901234567890\n", "line 1: expected"),
        ("orders,0,1\norders,0,2\n", r"line 2: orders\[0\] has an offset already, 1, got 2"),
        ("stock,orders,0,1\norders,1,2\n", "some lines name a group, and some do not"),
        ('"orders,0,1\n', "f.csv: "),
    ],
)
def test_what_is_no_such_file_says_where(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        offsetfile.parse(text, "f.csv")


def test_the_lines_of_a_group_are_its_own_or_those_that_name_none() -> None:
    offsets = {("orders", 0): 1}
    assert offsetfile.of_group({None: offsets}, "stock", "f.csv") == offsets
    assert offsetfile.of_group({"stock": offsets}, "stock", "f.csv") == offsets
    with pytest.raises(UsageError, match="no line is of group 'stock'; its lines are of 'email'"):
        offsetfile.of_group({"email": offsets}, "stock", "f.csv")
