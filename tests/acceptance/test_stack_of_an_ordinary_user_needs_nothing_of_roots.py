from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from stream import stack
from tests.support.stacks import copy_of_the_cache

ROOT = Path(__file__).resolve().parents[2]
USER = pwd.getpwnam("nobody")
AS_USER: dict[str, Any] = {"user": USER.pw_uid, "group": USER.pw_gid, "extra_groups": []}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the user's, outside of what is root's alone."""
    made = Path(tempfile.mkdtemp(prefix="stream-user-", dir="/tmp"))
    copy_of_the_cache(made / "cache")
    for path in (made, *made.rglob("*")):
        os.chown(path, USER.pw_uid, USER.pw_gid)
    yield made
    stack.down(made / stack.FOLDER)
    shutil.rmtree(made)


def python(environment: dict[str, str]) -> str:
    """A Python that the user can run and that finds the project's packages."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        try:
            subprocess.run(
                [candidate, "-c", "import psycopg, confluent_kafka, stream.stack"],
                env=environment,
                cwd="/",
                check=True,
                capture_output=True,
                **AS_USER,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    pytest.skip("no Python here that another user can run")


def test_stack_of_an_ordinary_user_needs_nothing_of_roots(folder: Path) -> None:
    packages = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
    environment = {"PATH": os.defpath, "PYTHONPATH": packages, "XDG_CACHE_HOME": str(folder / "cache")}
    program = [python(environment), "-W", "error", "-c", "from stream.cli import main; main()", "stack"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*program, *arguments], env=environment, cwd=folder, capture_output=True, text=True, **AS_USER
        )

    up = run("up")
    assert up.returncode == 0, up.stderr
    assert run("status").returncode == 0
    data = folder / stack.FOLDER
    assert data.stat().st_mode & 0o777 == 0o700
    assert (data / "postgres" / "data" / "PG_VERSION").exists()
    owners = {path.stat().st_uid for path in (data, *data.rglob("*"))}
    assert owners == {USER.pw_uid}
    users = {
        one.info["username"]
        for one in psutil.process_iter(["username", "cmdline"])
        if str(data) in str(one.info)
    }
    assert users == {"nobody"}
    assert run("down").returncode == 0
    assert run("status").returncode == 3
