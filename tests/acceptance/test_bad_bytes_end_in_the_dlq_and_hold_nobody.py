"""Records that no producer of ours writes: each is a dead letter with its bytes as they were, and every key goes on."""

import json
from pathlib import Path

from stream.config import Config
from tests.support.effects import Effects, consume, migrate, order_project
from tests.support.orders import an_order
from tests.support.processes import run
from tests.support.topics import produce_raw, read_all


def test_bad_bytes_end_in_the_dlq_and_hold_nobody(
    tmp_path: Path, config: Config, environment: dict[str, str], effects: Effects
) -> None:
    shop = order_project(tmp_path / "shop")
    migrate(shop, environment)

    def placed(lines: int) -> bytes:
        return shop.codec.encode("OrderPlaced", an_order(lines))

    bad = {
        b"random": (b"\x8f\x03\xff\xfe garbage", [("x", b"\xff\xfe"), ("x", None)]),
        b"unknown schema": (b"\0\0\0\x27\x0f" + placed(1)[5:], []),
        b"truncated": (placed(1)[:-3], []),
        b"trailing": (placed(1) + b"\0", []),
        b"a huge block": (placed(1)[:5] + b"\xfe\xff\xff\xff\x0f" * 4, []),
        b"no text in ce_type": (placed(1), [("ce_type", b"\xc3(")]),
        b"no text in ce_id": (placed(1), [("ce_id", b"\xff")]),
        b"\xff\xfe no text": (placed(1), []),
        None: (b"garbage", []),
    }
    good = {
        b"no text in a header of others": [("x-shop", b"\xff\xfe"), ("x-none", None)],
        **{f"k{n}".encode(): None for n in range(40)},
    }
    produce_raw(config, "orders", [(key, value, headers) for key, (value, headers) in bad.items()])
    positions = {m.key(): (m.partition() or 0, m.offset() or 0) for m in read_all(config, "orders")}
    decodable = [key for key in bad if key not in (None, b"\xff\xfe no text")]
    produce_raw(
        config, "orders", [(key, placed(n), good.get(key)) for n in (1, 2, 3) for key in (*decodable, *good)]
    )
    produce_raw(config, "orders", [(key, None, None) for key in good])  # tombstones
    produce_raw(config, "orders", [(None, placed(4), None)] * 6)

    at_end = consume(shop, environment, at_end=True)
    assert at_end.wait() == 0, at_end.stderr
    lines = [json.loads(line) for line in at_end.stderr.splitlines() if line.startswith("{")]
    named = {(line["partition"], line["offset"]) for line in lines if line["event"] == "event.dead"}
    assert named == set(positions.values())
    expected = {key.decode(): [1, 2, 3] for key in (*decodable, *good)}
    assert {key: numbers for key, numbers in effects.by_key().items() if key is not None} == expected
    assert effects.by_key()[None] == [4] * 6
    assert f"{len(good)} skipped" in at_end.stderr

    assert run("relay", "--once", env=environment, cwd=shop.root).wait() == 0
    letters = read_all(config, "testers.dlq")
    assert len(letters) == len(bad)
    for letter in letters:
        value, headers = bad[letter.key()]
        assert letter.value() == value
        assert (letter.headers() or [])[: len(headers)] == headers
        error = {name: (text or b"").decode() for name, text in (letter.headers() or [])[len(headers) :]}
        position = (int(error["stream.error.partition"]), int(error["stream.error.offset"]))
        assert position == positions[letter.key()]
        assert (error["stream.error.kind"], error["stream.error.group"]) == ("decode", "testers")
