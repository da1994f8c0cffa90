"""psql, a JSON document, one function: the order row and its event in one transaction, Avro on the topic."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg

from stream import app
from stream.config import Config
from stream.project import Project
from tests.support.processes import run
from tests.support.psql import psql
from tests.support.topics import read_all

ORDER = """
{
    "customer_id": "17850", "currency": "GBP", "country": "United Kingdom",
    "placed_at": "2010-12-01T08:26:00Z",
    "lines": [{"sku": "85123A", "description": "WHITE HANGING HEART T-LIGHT HOLDER", "quantity": 6,
               "unit_price": 2.55, "service": false}]
}
"""
SCRIPT = """
begin;
create table orders (id text primary key, document jsonb not null);
insert into orders values ('536365', :'order');
select stream.append('OrderPlaced', '536365', :'order', id => 'checkout-1', headers => '{"traceparent": "00-ab"}');
commit;
"""


def test_the_event_arrives_as_if_python_had_written_it(
    config: Config, project: Project, environment: dict[str, str], conn: psycopg.Connection[Any]
) -> None:
    app.migrate(config, project)
    placed = psql(config.database_url, SCRIPT, order=ORDER)
    assert (placed.returncode, placed.stderr) == (0, "")
    id = placed.stdout.strip()
    assert run("relay", "--once", env=environment, cwd=config.project).wait() == 0
    [message] = read_all(config, "orders")
    assert message.key() == b"536365"
    value = message.value() or b""
    assert value[:5] == b"\0" + project.schemas.latest("OrderPlaced").number.to_bytes(4, "big")
    headers = dict(message.headers() or [])
    assert (headers["ce_id"], headers["ce_type"], headers["traceparent"]) == (
        id.encode(),
        b"OrderPlaced",
        b"00-ab",
    )
    type, data = project.codec.decode(value)
    assert type == "OrderPlaced"
    assert data["placed_at"] == datetime(2010, 12, 1, 8, 26, tzinfo=UTC)
    assert data["lines"][0]["unit_price"] == Decimal("2.55")
    assert value == project.codec.encode(type, json.loads(ORDER, parse_float=Decimal))


MISTAKEN = """
begin;
create table orders (id text primary key);
insert into orders values ('1');
savepoint before;
select stream.append('OrderPlaced', '1', :'order'::jsonb - 'lines');
rollback to before;
select stream.append('OrderPlacedd', '1', :'order');
rollback to before;
insert into orders values ('2');
commit;
select string_agg(id, ',') from orders;
select count(*) from stream.outbox;
"""


def test_a_mistake_is_refused_in_the_callers_transaction_and_a_savepoint_saves_it(
    config: Config, project: Project
) -> None:
    app.migrate(config, project)
    tried = psql(config.database_url, MISTAKEN, order=ORDER)
    errors = [line for line in tried.stderr.splitlines() if "ERROR" in line]
    assert [error.partition("ERROR:  ")[2] for error in errors] == [
        "stream.append: OrderPlaced.lines: expected array, got nothing",
        'stream.append: unknown event type "OrderPlacedd"',
    ]
    assert "Known are: InvoiceIssued, OrderCancelled" in tried.stderr
    assert tried.stdout.split() == ["1,2", "0"]


def test_without_a_savepoint_the_mistake_takes_the_order_with_it(config: Config, project: Project) -> None:
    app.migrate(config, project)
    script = """
        create table orders (id text);
        begin;
        insert into orders values ('1');
        select stream.append('OrderPlaced', '', :'order');
        commit;
        select count(*) from orders;
    """
    tried = psql(config.database_url, script, order=ORDER)
    assert "OrderPlaced.key: expected text of 1 to 1024 bytes, got 0 bytes" in tried.stderr
    assert tried.stdout.split() == ["0"]
