"""Its row took an id, and was there for no reader at any time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.truth import Truth


def test_only_what_was_committed_arrives(
    config: Config, environment: dict[str, str], tmp_path: Path, conn: psycopg.Connection[Any]
) -> None:
    truth = Truth(config, make_project(tmp_path / "small"))
    relay = Command("relay", env=environment, cwd=truth.project.root)
    for n, commits in enumerate((True, False, True, False)):
        truth.append(conn, "key")
        truth.append(conn, f"delayed {n}", delay=0)
        truth.append(conn, "of this transaction alone" if commits else "of no transaction")
        if commits:
            conn.commit()
        else:
            truth.commit("meanwhile")
            conn.rollback()
    truth.wait_published()
    assert relay.stop() == 0
    assert "of no transaction" not in truth.expected()
    assert truth.check() == 0
