"""Keys as people read and type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.errors import UsageError
from stream.keys import partition_of, shown_key, typed_key


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (b"536365", "536365"),
        ("Größe 7".encode(), "Größe 7"),
        (b"\xff\x00", "\\xff00"),
        (b"two\nlines", "\\x74776f0a6c696e6573"),
        (b"\x1b[31m", "\\x1b5b33316d"),
        (b"\\xff00", "\\x5c7866663030"),
        (None, None),
    ],
)
def test_a_key_is_shown_as_text_or_as_hex(key: bytes | None, shown: str | None) -> None:
    assert shown_key(key) == shown


@given(st.binary(min_size=1))
def test_a_key_that_was_shown_can_be_typed(key: bytes) -> None:
    shown = shown_key(key)
    assert shown is not None
    assert shown.isprintable()
    assert typed_key(shown) == key


@given(st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: not text.startswith("\\x")))
def test_a_typed_key_is_its_utf_8(text: str) -> None:
    assert typed_key(text) == text.encode()


@pytest.mark.parametrize("text", ["\\x1", "\\xzz", "\udc80"])
def test_a_key_that_is_no_hex_and_no_text_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="expected text"):
        typed_key(text)


# From the Java client's own test of its hash (UtilsTest.testMurmur2), as positive numbers.
@pytest.mark.parametrize(
    ("key", "hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_partition_is_the_java_client_s(key: bytes, hash: int) -> None:
    assert partition_of(key, 2**31) == hash & 0x7FFFFFFF
