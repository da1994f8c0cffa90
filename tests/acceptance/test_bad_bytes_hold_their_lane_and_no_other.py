"""Records that no producer of ours writes: each waits, named with its position, and every other key goes on."""

import shutil
from pathlib import Path

import pytest

from stream.config import Config
from stream.project import Project
from tests.support.effects import Effects, committed, consume, migrate, write_group
from tests.support.orders import an_order
from tests.support.topics import produce_raw, read_all
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shop(tmp_path: Path, environment: dict[str, str]) -> Project:
    """The real schemas and topics, and a group on orders that keeps an effect log."""
    root = tmp_path / "shop"
    shutil.copytree(ROOT / "schemas", root / "schemas")
    (root / "consumers").mkdir()
    project = Project(root)
    group = write_group(project)
    text = group.read_text().replace('"things"', '"orders"').replace('"Happened"', '"OrderPlaced"')
    group.write_text(text.replace('event.data["n"]', "len(event.data['lines'])"))
    migrate(project, environment)
    return project


def test_bad_bytes_hold_their_lane_and_no_other(
    shop: Project, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    def placed(lines: int) -> bytes:
        return shop.codec.encode("OrderPlaced", an_order(lines))

    bad = {
        b"random": (b"\x8f\x03\xff\xfe garbage", None),
        b"unknown schema": (b"\0\0\0\x27\x0f" + placed(1)[5:], None),
        b"truncated": (placed(1)[:-3], None),
        b"trailing": (placed(1) + b"\0", None),
        b"no text in ce_type": (placed(1), [("ce_type", b"\xc3(")]),
        b"no text in ce_id": (placed(1), [("ce_id", b"\xff")]),
        b"\xff\xfe no text": (placed(1), None),
    }
    good = {
        b"no text in a header of others": [("x-shop", b"\xff\xfe"), ("x-none", None)],
        **{f"k{n}".encode(): None for n in range(40)},
    }
    lanes = [key.decode(errors="backslashreplace") for key in bad]
    produce_raw(config, "orders", [(key, value, headers) for key, (value, headers) in bad.items()])
    positions = {
        message.key(): (message.partition() or 0, message.offset() or 0)
        for message in read_all(config, "orders")
    }
    produce_raw(
        config, "orders", [(key, placed(n), good.get(key)) for n in (1, 2, 3) for key in (*bad, *good)]
    )
    produce_raw(config, "orders", [(key, None, None) for key in good])  # tombstones
    produce_raw(config, "orders", [(None, placed(4), None)] * 6)

    running = consume(shop, environment)
    expected = {key.decode(): [1, 2, 3] for key in good}
    until(lambda: effects.count() >= 3 * len(good) + 6, 30, lambda: running.stderr)
    for partition, offset in positions.values():
        running.says(f"orders[{partition}]@{offset}")
    assert running.stop() == 0
    assert {key: numbers for key, numbers in effects.by_key().items() if key is not None} == expected
    assert f"{len(good)} skipped" in running.stderr

    # The offset does not pass them, whatever lies behind.
    first: dict[int, int] = {}
    for partition, offset in positions.values():
        first[partition] = min(offset, first.get(partition, offset))
    offsets = committed(config, "orders")
    assert {partition: offsets[partition] for partition in first} == first

    at_end = consume(shop, environment, at_end=True)
    assert at_end.wait() == 6
    for lane in lanes:
        assert lane in at_end.stderr.splitlines()[-1]


def test_bad_bytes_without_a_key_hold_the_keyless_of_their_partition_only(
    shop: Project, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    placed = shop.codec.encode("OrderPlaced", an_order())
    produce_raw(config, "orders", [(None, b"garbage", None)])
    [message] = read_all(config, "orders")
    keys = [f"k{n}".encode() for n in range(60)]
    produce_raw(config, "orders", [(key, placed, None) for key in keys])
    at_end = consume(shop, environment, at_end=True)
    assert at_end.wait() == 6
    assert f"no key, orders[{message.partition()}]@0" in at_end.stderr.splitlines()[-1]
    assert effects.by_key() == {key.decode(): [1] for key in keys}
