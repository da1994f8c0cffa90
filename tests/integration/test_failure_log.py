"""What the log holds of a failed try: enough to find it, nothing that is secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream import Context, Event, PermanentError, logs
from tests.support.retries import RetryingWorker
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
        worker = RetryingWorker(project, database_url, log_in, batch=2)
        logs.configure(format=format)
        assert worker.kinds(record(project, "a", 1), record(project, "b", 1000)) == ["done", "parked"]
        worker.execution.close()
        return str(capsys.readouterr().err)

    return make


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_failed_try_is_logged_without_the_local_variables_of_its_handler(report, format: str) -> None:
    logged = report(format)
    assert "CheckViolation" in logged
    assert SECRET[::-1] not in logged
    assert "customer" not in logged


def test_a_failed_try_shows_the_handlers_frames_and_none_of_the_engine(report) -> None:
    stack = json.loads(report("json"))["stack"]
    assert "in log_in" in stack
    assert "handling.py" not in stack


def test_a_failed_try_is_a_short_text(report) -> None:
    logged = report("text")
    assert "Unplaced" not in logged
    assert "During handling" not in logged
    assert len(logged.splitlines()) < 20


def test_a_death_names_its_letter(tmp_path: Path, database_url: str, capsys: Any) -> None:
    def die(event: Event, ctx: Context) -> None:
        raise PermanentError("no lines")

    project = make_project(tmp_path)
    worker = RetryingWorker(project, database_url, die)
    logs.configure(format="json")
    assert worker.kinds(record(project, "a", 1)) == ["dead"]
    worker.execution.close()
    with psycopg.connect(database_url) as conn:
        [(number,)] = conn.execute("select id from stream.dead_letter").fetchall()
    assert json.loads(capsys.readouterr().err)["hint"] == f"stream dlq show {number}"


@pytest.mark.parametrize("error", [ValueError("no price"), PermanentError("no lines")])
def test_a_death_is_logged_with_the_kind_of_its_letter_and_no_next_try(
    tmp_path: Path, database_url: str, capsys: Any, error: Exception
) -> None:
    def die(event: Event, ctx: Context) -> None:
        raise error

    project = make_project(tmp_path)
    worker = RetryingWorker(project, database_url, die, attempts=1)
    logs.configure(format="json")
    assert worker.kinds(record(project, "a", 1)) == ["dead"]
    worker.execution.close()
    logged = json.loads(capsys.readouterr().err)
    with psycopg.connect(database_url) as conn:
        assert conn.execute("select kind from stream.dead_letter").fetchall() == [(logged["kind"],)]
    assert (logged["event"], "again_in_seconds" in logged) == ("event.dead", False)


def test_a_failure_is_logged_with_the_time_to_its_next_try(report) -> None:
    logged = json.loads(report("json"))
    assert (logged["event"], logged["kind"]) == ("event.failed", "failure")
    assert 0 <= logged["again_in_seconds"] <= 2  # by chance, from none to 2 s


def test_text_from_others_does_not_steer_the_terminal(tmp_path: Path, database_url: str, capsys: Any) -> None:
    def fail(event: Event, ctx: Context) -> None:
        raise ValueError("\x1b[2Jgone\x9b1m\u202e")

    project = make_project(tmp_path)
    worker = RetryingWorker(project, database_url, fail)
    logs.configure(format="text")
    assert worker.kinds(record(project, "k\x1b]0;title\x07", 1)) == ["parked"]
    worker.execution.close()
    logged = capsys.readouterr().err
    assert "\\x1b[2Jgone\\x9b1m\\u202e" in logged
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(logged)
