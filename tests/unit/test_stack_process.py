"""Server processes: recognised by what they are, not by their number."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stream.stack import process
from stream.stack.process import Identity
from tests.support.waiting import until


@pytest.fixture
def identity(tmp_path: Path) -> Identity:
    return Identity("python3", f"-Xstack={tmp_path}")


@pytest.fixture
def server(identity: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process that writes a line and waits to be ended."""
    monkeypatch.setenv("STREAM_SECRET", "hush")
    program = tmp_path / "python3"
    program.symlink_to(os.path.realpath("/proc/self/exe"))
    code = "import signal, sys; print('hello', flush=True); signal.pause()"
    pid = process.spawn(
        [str(program), identity.argument, "-S", "-c", code], log=tmp_path / "log", cwd=tmp_path
    )
    yield pid
    process.send(pid, signal.SIGKILL)
    assert process.wait_gone(pid, identity, timeout_s=10)


def test_a_server_is_found_without_its_number(server: int, identity: Identity) -> None:
    assert process.find(identity) == server
    assert process.is_running(server, identity)


def test_another_process_with_the_number_is_not_the_server(server: int, tmp_path: Path) -> None:
    assert not process.is_running(server, Identity("python3", "-Xstack=/another"))
    assert not process.is_running(os.getpid(), Identity("python3", f"-Xstack={tmp_path}"))


def test_a_server_is_nobodys_child_and_has_a_session_of_its_own(server: int) -> None:
    assert psutil.Process(server).ppid() != os.getpid()
    assert os.getsid(server) != os.getsid(0)


def test_a_server_does_not_get_the_callers_environment(server: int) -> None:
    assert "STREAM_SECRET" not in psutil.Process(server).environ()


def test_a_server_that_was_killed_is_gone(server: int, identity: Identity) -> None:
    process.send(server, signal.SIGKILL)
    assert process.wait_gone(server, identity, timeout_s=10)
    assert process.find(identity) is None
    process.send(server, signal.SIGTERM)


def test_a_halted_server_is_seen_to_be_halted(server: int) -> None:
    assert not process.is_stopped(server)
    process.send(server, signal.SIGSTOP)
    until(lambda: process.is_stopped(server), 10)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["one", "two"], "two"),
        (["FATAL:  no space", "HINT:  buy a disk", "LOG:  shut down"], "FATAL:  no space"),
        (
            [
                "ERROR Fatal error",
                "java.lang.OopsException: no",
                "\tat a.B.c(B.java:1)",
                "    ... 3 more",
                "",
            ],
            "java.lang.OopsException: no",
        ),
        (["Could not reserve heap", "\tat nowhere"], "Could not reserve heap"),
        ([], "(nothing)"),
    ],
)
def test_the_line_that_says_why_is_found(lines: list[str], reason: str) -> None:
    assert process.last_of(lines) == reason


def test_only_the_lines_of_this_start_are_read(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    assert process.start_of_log(log) == 0
    log.write_text("old\n")
    start = process.start_of_log(log)
    with open(log, "a", encoding="utf-8") as file:
        file.write("new\n")
    assert process.lines_since(log, start) == ["new"]


def test_a_log_that_grew_too_long_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with open(log, "wb") as file:
        file.truncate(process.LOG_LIMIT_BYTES + 1)
    assert process.start_of_log(log) == 0
    assert not log.exists()
    assert (tmp_path / "server.log.1").exists()
