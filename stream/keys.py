"""Keys: as people read and type them, and the partition that a key has. Pure."""

from __future__ import annotations

from stream.errors import UsageError

HEX = "\\x"


def shown_key(key: bytes | None) -> str | None:
    """The key as text; where it is none that a line can show, `\\x` and its bytes in hex, as psql has them.

    `typed_key` takes either back: no two keys are shown alike.
    """
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return HEX + key.hex()
    return text if text.isprintable() and not text.startswith(HEX) else HEX + key.hex()


def typed_key(text: str) -> bytes:
    """The bytes of a key as it was typed on a command line: text, or `\\x` and hex. Raises UsageError."""
    try:
        return bytes.fromhex(text.removeprefix(HEX)) if text.startswith(HEX) else text.encode()
    except ValueError:
        raise UsageError(
            f"key {text!r:.80}: expected text, or {HEX} and an even number of hex digits"
        ) from None


def partition_of(key: bytes, partitions: int) -> int:
    """Where the partitioner of the Java client, which the relay uses too, puts a key."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """The 32-bit hash of org.apache.kafka.common.utils.Utils.murmur2."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    whole = len(data) & ~3
    value = 0x9747B28C ^ len(data)
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        value = value * multiplier & mask ^ word
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * multiplier & mask
    value = (value ^ value >> 13) * multiplier & mask
    return value ^ value >> 15
