"""What cannot be published is set aside with its reason, its key's later rows behind it; all others pass."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from stream.project import Project
from stream.relay import Relay
from tests.support.small import make_project
from tests.support.topics import create_topic, read_all, set_limit
from tests.support.truth import Truth, append_bytes, keys_of_one_shard

Conn = psycopg.Connection[Any]

FIELD = {"name": "n", "type": "long"}
NESTED = {
    "type": "record",
    "name": "Happened",
    "fields": [
        FIELD,
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [FIELD]}},
         "default": []},
    ],
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = make_project(tmp_path / "small")
    (made.root / "schemas" / "0001-Happened.avsc").write_text(json.dumps(NESTED))
    return Project(made.root)


@pytest.fixture
def truth(config: Config, project: Project) -> Truth:
    create_topic(config, "things", 2, **{"max.message.bytes": "10000"})
    return Truth(config, project)


def rejected(conn: Conn) -> list[tuple[str, str, str]]:
    rows = conn.execute(
        "select convert_from(key, 'UTF8'), reason, error from stream.outbox_rejected order by id"
    ).fetchall()
    conn.rollback()
    return rows


def arrived(config: Config) -> dict[str, list[bytes]]:
    by_key: dict[str, list[bytes]] = {}
    for message in read_all(config, "things"):
        by_key.setdefault((message.key() or b"").decode(), []).append(message.value() or b"")
    return by_key


INCOMPRESSIBLE = random.Random(1).randbytes(20_000)
BEHIND = ("behind", "an earlier event of this key is rejected")


def work(relay: Relay, conn: Conn) -> None:
    """Passes until the outbox is empty; the producers stay."""
    while True:
        relay.run_once()
        [(left,)] = conn.execute("select count(*) from stream.outbox")
        conn.rollback()
        if not left:
            return


@pytest.mark.parametrize("first", [True, False], ids=["before any other row", "with an open producer"])
def test_a_row_the_broker_refuses_is_set_aside_with_the_rows_behind_it_until_retried(
    truth: Truth, relay: Relay, config: Config, conn: Conn, first: bool
) -> None:
    if not first:
        truth.commit("before")
        work(relay, conn)
    neighbours = keys_of_one_shard(conn, 6)
    big, others = neighbours[0], neighbours[1:]
    for value in (INCOMPRESSIBLE, b"2", b"3"):
        append_bytes(conn, "things", big.encode(), value)
        for key in others:
            append_bytes(conn, "things", key.encode(), value[:100])
    conn.commit()
    work(relay, conn)
    reasons = rejected(conn)
    assert [key for key, _, _ in reasons] == [big] * 3
    assert reasons[0][1] == "refused"
    assert "too large" in reasons[0][2]
    assert [(reason, error) for _, reason, error in reasons[1:]] == [BEHIND] * 2
    found = arrived(config)
    assert {key: found[key] for key in others} == {key: [INCOMPRESSIBLE[:100], b"2", b"3"] for key in others}
    assert big not in found

    append_bytes(conn, "things", big.encode(), b"4")
    conn.commit()
    work(relay, conn)
    assert [reason for _, reason, _ in rejected(conn)] == ["refused"] + ["behind"] * 3, (
        "so does a later event"
    )

    set_limit(config, "things", 100_000)
    conn.execute("select stream.retry_rejected('things', %s)", [big.encode()])
    conn.commit()
    work(relay, conn)
    assert rejected(conn) == [], "by the same producer, made when the limit was lower"
    assert arrived(config)[big] == [INCOMPRESSIBLE, b"2", b"3", b"4"]


def test_retried_while_the_limit_is_as_it_was_the_same_rows_are_rejected_again_in_their_order(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    ids = [
        append_bytes(conn, "things", b"k", value) for value in (INCOMPRESSIBLE, b"2", INCOMPRESSIBLE, b"4")
    ]
    conn.commit()
    relay.run_until_empty()
    conn.execute("select stream.retry_rejected('things', 'k')")
    conn.commit()
    assert relay.run_until_empty().rejected == {"things": 4}
    found = conn.execute("select event_id, reason from stream.outbox_rejected order by id").fetchall()
    assert found == list(zip(ids, ["refused", "behind", "behind", "behind"], strict=True))


def test_rows_behind_a_rejected_one_do_not_pass_it_within_one_read(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    """The first is rejected as it is encoded, before its followers were looked at."""
    truth.commit("warm")
    work(relay, conn)
    for data in ({"n": 1, "lines": 7}, {"n": 2}, {"n": 3}):
        conn.execute("select stream.append('Happened', '1', %s)", [json.dumps(data)])
    conn.execute("select stream.append('Happened', '2', %s)", [json.dumps({"n": 4})])
    conn.commit()
    assert relay.run_until_empty().rejected == {"things": 3}
    assert sorted(arrived(config)) == ["2", "warm"]
    assert [reason for _, reason, _ in rejected(conn)] == ["invalid", "behind", "behind"]


MISFITS = [
    ({"n": 1, "extra": 1}, "Happened.extra"),
    ({"n": 1, "lines": 7}, "Happened.lines: expected"),
    ({"n": 1, "lines": [{"n": 1}, {"n": "two"}]}, "lines[1].n: expected"),
    ({"n": 2**63}, "Happened.n: expected"),
    ({"n": 10**5000}, "Happened.n: expected"),
    ({"n": 1.5}, "Happened.n: expected"),
]


def test_data_from_plain_sql_that_does_not_fit_is_rejected_with_the_reason_and_others_pass(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    for number, (data, _) in enumerate(MISFITS):
        as_json = '{"n": 1' + "0" * 5000 + "}" if data["n"] == 10**5000 else json.dumps(data)
        conn.execute("select stream.append('Happened', %s, %s)", [f"bad-{number}", as_json])
        conn.execute(
            "select stream.append('Happened', %s, %s)", [f"good-{number}", json.dumps({"n": number})]
        )
    nested = '{"n": 1, "lines": ' + "[" * 3000 + "]" * 3000 + "}"
    conn.execute("select stream.append('Happened', 'deep', %s)", [nested])
    conn.commit()
    assert relay.run_until_empty().published == len(MISFITS)
    assert sorted(arrived(config)) == [f"good-{number}" for number in range(len(MISFITS))]
    said = {key: (reason, error) for key, reason, error in rejected(conn)}
    for number, (_, error) in enumerate(MISFITS):
        assert said[f"bad-{number}"][0] == "invalid"
        assert error in said[f"bad-{number}"][1]
    assert said["deep"][0] == "invalid"


def test_a_row_that_breaks_in_an_unforeseen_way_does_not_stop_the_others(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    """Header names and values of different number: no door writes it."""
    append_bytes(conn, "things", b"odd", b"1", [("a", b"x")])
    conn.execute("update stream.outbox set header_names = '{a,b}'")
    append_bytes(conn, "things", b"even", b"1")
    conn.commit()
    assert relay.run_until_empty().published == 1
    [(key, reason, error)] = rejected(conn)
    assert (key, reason) == ("odd", "invalid")
    assert "ValueError" in error


def test_innocent_rows_of_a_refused_batch_are_published_and_the_queues_behind_them_go_on(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    """A limit lowered under an open producer: whole batches are refused, then each row is tried alone."""
    truth.commit("warm")
    work(relay, conn)
    set_limit(config, "things", 1100)
    dice = random.Random(2)
    good = {f"good-{n}": [dice.randbytes(150) for _ in range(3)] for n in range(40)}
    for round in range(3):
        for n, (key, values) in enumerate(good.items()):
            append_bytes(conn, "things", key.encode(), values[round])
            if n % 8 == 0:
                append_bytes(conn, "things", f"bad-{n}".encode(), INCOMPRESSIBLE[:2000])
    conn.commit()
    work(relay, conn)
    found = arrived(config)
    assert {key: found.get(key) for key in good} == good
    assert [reason for _, reason, _ in rejected(conn)].count("refused") == 5
    assert {key for key, _, _ in rejected(conn)} == {f"bad-{n}" for n in range(0, 40, 8)}


def test_thousands_of_rejected_rows_of_a_shard_do_not_make_its_other_keys_slow(
    truth: Truth, relay: Relay, config: Config, conn: Conn
) -> None:
    """Whether a key has rejected rows is one look-up, not a walk over those of its neighbours."""
    bad, good = keys_of_one_shard(conn, 2)
    conn.execute(
        """
        insert into stream.outbox_rejected (id, shard, topic, key, event_id, type, "time", created_at, reason, error)
        select -n, 5, 'things', %s::bytea, gen_random_uuid(), 'Happened', now(), now(), 'behind', ''
        from generate_series(1, 5000) n
        """,
        [bad.encode()],
    )
    for n in range(100):
        append_bytes(conn, "things", good.encode(), b"%d" % n)
    conn.commit()
    work(relay, conn)
    assert relay._session is not None
    relay._session.connection.execute("select pg_stat_force_next_flush()")
    [(probes, walked)] = conn.execute(
        "select sum(idx_scan), sum(idx_tup_read) from pg_stat_user_indexes where relname = 'outbox_rejected'"
    )
    assert len(arrived(config)[good]) == 100
    assert probes >= 100
    assert walked < 1000
