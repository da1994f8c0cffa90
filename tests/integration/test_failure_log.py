"""What the log holds of a failed try: enough to find it, nothing that is secret."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream import ConsumerGroup, Context, Event, failures, logs
from stream.execution import Execution
from stream.lanes import Run
from tests.support.small import make_project, record

SECRET = "correct horse battery staple"


def log_in(event: Event, ctx: Context) -> None:
    password = SECRET[::-1]
    customer = {"mail": SECRET[::-1]}
    ctx.db.execute("insert into effect (n) values (%s)", [event.data["n"]])
    assert password and customer


@pytest.fixture
def report(tmp_path: Path, database_url: str, conn: psycopg.Connection[Any], capsys: Any) -> Any:
    """What is logged, in a format, of the second of two events tried together: it breaks a constraint."""

    def make(format: str) -> str:
        conn.execute("create table effect (n int check (n < 1000))")
        conn.commit()
        project = make_project(tmp_path)
        group = ConsumerGroup("testers", topics=["things"], start="beginning", batch=2)
        group.on("Happened")(log_in)
        execution = Execution(group, project, database_url, worker="w1", stopping=threading.Event())
        records = [record(project, "a", 1), record(project, "b", 1000)]
        outcomes = execution.run(Run(records, 1))
        execution.close()
        assert [outcome.kind for outcome in outcomes] == ["done", "failed"]
        logs.configure(format=format)
        failures.report("testers", records[1], outcomes[1], attempt=1, again_in=1.0)
        return str(capsys.readouterr().err)

    return make


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_failed_try_is_logged_without_the_local_variables_of_its_handler(report, format: str) -> None:
    logged = report(format)
    assert "CheckViolation" in logged
    assert SECRET[::-1] not in logged
    assert "customer" not in logged


def test_a_failed_try_shows_the_handlers_frames_and_none_of_the_engine(report) -> None:
    [error] = json.loads(report("json"))["exception"]
    assert error["frames"][0]["name"] == "log_in"
    assert not any("handling.py" in frame["filename"] for frame in error["frames"])


def test_a_failed_try_is_a_short_text(report) -> None:
    logged = report("text")
    assert "Unplaced" not in logged
    assert "During handling" not in logged
    assert len(logged.splitlines()) < 20
