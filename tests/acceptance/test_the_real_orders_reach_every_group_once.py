"""All twenty days of a real shop, from the CSV files through the three groups, held against the files.

The files are the data set "Online Retail" (UCI, doi 10.24432/C5BW33) split by day; STREAM_RETAIL_DIR names their
folder. Where they are not to be had, files of the same shape are made up.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from stream.demo.provider import MailProvider
from stream.project import Project
from tests.support.pdf import text_of
from tests.support.processes import Command, run
from tests.support.retail import Expected, folder
from tests.support.topics import read_all
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ("invoicing", "email", "stock")


def applied(conn: psycopg.Connection[Any]) -> dict[str, int]:
    """Events each group has settled, and under "waiting" what is not in a topic yet."""
    conn.rollback()
    counts = dict(conn.execute("select consumer_group, count(*) from stream.ledger group by 1").fetchall())
    [waiting] = conn.execute(
        "select (select count(*) from stream.outbox) + (select count(*) from stream.scheduled)"
    ).fetchone() or [0]
    return {**counts, "waiting": waiting}


def everything(conn: psycopg.Connection[Any]) -> list[Any]:
    """All there is of orders and effects."""
    conn.rollback()
    tables = ["shop.customer", "shop.customer_order", "shop.order_line", "mail", "stock_level"]
    queries = [f"select t.* from {table} t order by t" for table in tables]
    queries += [
        "select count(*) from stream.ledger",
        "select order_id, kind, number from invoice order by 1, 2",
    ]
    return [conn.execute(query.encode()).fetchall() for query in queries]


@pytest.mark.timeout(240)
def test_the_real_orders_reach_every_group_once(
    config: Config,
    project: Project,
    env: dict[str, str],
    provider: MailProvider,
    conn: psycopg.Connection[Any],
    tmp_path: Path,
) -> None:
    files, real = folder(tmp_path / "made-up")
    expected = Expected(files)
    orders = sum(expected.kinds.values())
    if real:
        assert (orders, expected.lines) == (2025, 42481)
    assert run("migrate", env=env, cwd=ROOT).wait() == 0

    placing = run("demo", "place", "--csv", str(files), env=env, cwd=ROOT)
    assert placing.wait() == 0
    assert placing.stdout == (
        "{placed} orders, {returned} returns and {adjusted} stock adjustments placed;"
        " 0 were there already\n".format(**expected.kinds)
    )

    # The relay and the three groups, side by side, until nothing is left to do.
    relay = Command("relay", env=env, cwd=ROOT)
    groups = Command("consume", *(f"--group={group}" for group in GROUPS), env=env, cwd=ROOT)
    documents = len(expected.totals)

    def settled() -> bool:
        counts = applied(conn)
        return (
            counts["waiting"] == 0
            and counts.get("invoicing") == expected.kinds["placed"] + expected.kinds["returned"]
            and counts.get("email") == expected.kinds["placed"] + documents
            and counts.get("stock", 0) >= orders
        )

    until(settled, 120, lambda: f"{applied(conn)}\n{relay.stderr[-2000:]}\n{groups.stderr[-2000:]}")
    assert groups.stop() == 0
    at_end = run("consume", *(f"--group={group}" for group in GROUPS), "--exit-at-end", env=env, cwd=ROOT)
    assert at_end.wait() == 0, at_end.stderr
    until(lambda: applied(conn)["waiting"] == 0, 30, lambda: relay.stderr[-2000:])
    assert relay.stop() == 0

    the_invoices_agree(conn, expected)
    the_mails_agree(conn, provider, expected)
    the_stock_agrees(conn, config, project, expected)
    skipped = conn.execute(
        "select consumer_group, reason, count(*) from stream.ledger where outcome = 'skipped' group by 1, 2"
    ).fetchall()
    assert {(group, reason): count for group, reason, count in skipped} == dict(expected.skipped)

    # A second import changes nothing.
    before = everything(conn)
    again = run("demo", "place", "--csv", str(files), env=env, cwd=ROOT)
    assert again.wait() == 0
    assert f"0 orders, 0 returns and 0 stock adjustments placed; {orders} were there already" in again.stdout
    assert applied(conn)["waiting"] == 0
    unchanged = everything(conn) == before  # a difference of 40,000 lines takes minutes to print
    assert unchanged, "the second import changed something"


def the_invoices_agree(conn: psycopg.Connection[Any], expected: Expected) -> None:
    rows = conn.execute(
        "select order_id, kind, number, total_minor, currency, document from invoice order by kind, number"
    ).fetchall()
    assert {(order_id, kind): total for order_id, kind, _, total, _, _ in rows} == expected.totals
    for kind in ("invoice", "credit_note"):
        numbers = [number for _, found, number, _, _, _ in rows if found == kind]
        assert numbers == list(range(1, len(numbers) + 1))
    for order_id, kind, number, total, currency, document in rows:
        text = text_of(document)
        assert text.startswith(f"{kind.replace('_', ' ').upper()} {number}\n")
        assert re.search(rf"\nOrder +{order_id}\n", text)
        printed = f"{total // 100:,}.{total % 100:02}"
        assert text.endswith(f" {printed} {currency}")


def the_mails_agree(conn: psycopg.Connection[Any], provider: MailProvider, expected: Expected) -> None:
    rows = conn.execute("select order_id, kind, message_id from mail").fetchall()
    assert Counter((order_id, kind) for order_id, kind, _ in rows) == Counter(list(expected.mails))
    recipients = {message_id: expected.mails[order_id, kind] for order_id, kind, message_id in rows}
    received = Counter((mail.message_id, *mail.recipients) for mail in provider.mails)
    assert received == Counter(recipients.items())  # each once


def the_stock_agrees(
    conn: psycopg.Connection[Any], config: Config, project: Project, expected: Expected
) -> None:
    levels = dict(conn.execute("select sku, on_hand from stock_level").fetchall())
    assert levels == dict(expected.levels)

    # Whatever is low at the end was last looked at after its last movement.
    events = [project.codec.decode(record.value() or b"") for record in read_all(config, "stock")]
    last = {data["sku"]: data["on_hand"] for type, data in events if type == "StockLow"}
    low = {sku: on_hand for sku, on_hand in levels.items() if on_hand < 100}
    assert low
    assert {sku: last.get(sku) for sku in low} == low
