"""stream.testing: a group's handlers on events, in a few lines."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from stream import ConsumerGroup, Context, Event
from stream.errors import GroupError, InvalidEvent
from stream.testing import run
from tests.conftest import ROOT
from tests.support.orders import an_order
from tests.support.small import make_project


def test_an_order_gets_an_invoice(database_url: str) -> None:
    ran = run("invoicing", [("OrderPlaced", "536365", an_order())], database_url=database_url, project=ROOT)
    assert ran.kinds == ["done"]
    assert [(event.type, event.key) for event in ran.emitted] == [("InvoiceIssued", "536365")]
    with psycopg.connect(database_url) as conn:
        assert conn.execute("select order_id, number from invoice").fetchall() == [("536365", 1)]


def test_an_empty_database_will_do_and_failures_are_outcomes(tmp_path: Path, database_url: str) -> None:
    group = ConsumerGroup("testers", topics=["things"], start="end", batch=10)

    @group.on("Happened")
    def happened(event: Event, ctx: Context) -> None:
        if event.data["n"] == 0:
            raise ValueError("nought")
        ctx.emit("Echoed", key=str(event.key), data={"n": 1 // event.data["n"]}, delay=60)

    with psycopg.connect(database_url) as conn:
        conn.execute("drop schema stream cascade")
    events = [("Happened", "a", {"n": 1}), ("Happened", "b", {"n": 0}), ("Happened", "b", {"n": 1})]
    ran = run(group, events, database_url=database_url, project=make_project(tmp_path))
    assert ran.kinds == ["done", "failed", "unrun"]
    assert isinstance(ran.outcomes[1].error, ValueError)
    assert [event.key for event in ran.emitted] == ["a"]


def test_a_wrong_call_is_refused(database_url: str) -> None:
    with pytest.raises(InvalidEvent, match="OrderPlaced"):
        run("invoicing", [("OrderPlaced", "1", {})], database_url=database_url, project=ROOT)
    with pytest.raises(GroupError, match="did you mean 'invoicing'"):
        run("invoices", [], database_url=database_url, project=ROOT)
