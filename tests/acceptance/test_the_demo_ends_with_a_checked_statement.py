"""`stream demo` on servers that run already, small: a worker is killed, and all of the statement is so."""

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream.config import Config
from stream.kafka.admin import partition_counts
from tests.support.processes import run

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_ends_with_a_checked_statement(
    environment: dict[str, str], config: Config, conn: psycopg.Connection[Any]
) -> None:
    demo = run("demo", "--orders", "150", env=environment, cwd=ROOT, seconds=180)

    assert demo.wait() == 0, demo.stderr + demo.stdout
    statement, _, story = demo.stdout.partition("The order whose worker was killed, as `")
    said = [line.split()[:2] for line in statement.splitlines() if line]
    assert said == [["ok", name] for name in ("orders", "invoices", "mails", "stock")]
    assert re.search(r"150 orders, \d+ events in the topic, each order's complete and in order", statement)
    assert re.search(r"invoices 1 to \d+ and credit notes 1 to \d+ without a gap", statement)
    assert re.search(r"\d+ mails received, each once", statement)
    assert "26 articles" in statement or "25 articles" in statement

    assert re.search(r"killed the email worker \(SIGKILL, process \d+\)", demo.stderr)
    assert re.match(r"stream order show 1\d{5}` told it:\n", story)
    assert "OrderPlaced" in story and "invoicing" in story and "email" in story

    assert "the demo's database and topics are removed\n" in demo.stderr
    assert demo.stderr.endswith("-> stream init myshop\n")

    # Nothing of it is left.
    names = [name for (name,) in conn.execute("select datname from pg_database")]
    assert not [name for name in names if name.startswith("stream_demo_")]
    assert not [topic for topic in partition_counts(config) if "stream_demo_" in topic]
