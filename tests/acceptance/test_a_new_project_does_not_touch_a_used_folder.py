"""`stream init` writes nothing where something is already, and says in one sentence where it cannot write."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from stream.cli import main


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    result = CliRunner().invoke(main, ["init", str(tmp_path)])
    assert result.exit_code == 4
    assert "is not empty; nothing was written" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "myshop").write_text("mine")
    assert CliRunner().invoke(main, ["init", str(tmp_path / "myshop")]).exit_code == 4


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["init", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "consumers" / "receipts.py").exists()


@pytest.mark.parametrize("path", ["/proc/myshop", "/dev/null/myshop"])
def test_a_folder_that_cannot_be_made_is_one_sentence(path: str) -> None:
    result = CliRunner().invoke(main, ["init", path])
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr
    assert "Traceback" not in result.stderr
