from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import Command
from tests.support.stacks import Checkout, checkout


def error_of(command: Command) -> str:
    """The one sentence of a command that failed."""
    assert command.wait() == 1
    assert "Traceback" not in command.stderr
    lines = [line for line in command.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1
    return lines[0]


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A small disk of its own on the folder; the test is skipped where that is not allowed."""
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
    if made.returncode != 0:
        pytest.skip(f"no right to mount: {made.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Checkout]:
    with checkout(tmp_path / "shop") as made:
        yield made


def test_stack_on_a_full_disk_says_so(shop: Checkout) -> None:
    with mounted(shop.folder, "size=20m"):
        error = error_of(shop.run("up"))
    assert error.startswith(f"Error: the disk of {shop.data} is full: ")
    assert "300 MB are needed" in error


def test_stack_on_a_disk_that_takes_nothing_more_says_so(shop: Checkout) -> None:
    with mounted(shop.folder, "nr_inodes=2"):
        error = error_of(shop.run("up"))
    assert error == f"Error: the disk of {shop.data / 'lock'} is full"


def test_stack_in_a_folder_it_cannot_write_to_says_so(shop: Checkout) -> None:
    with mounted(shop.folder, "ro"):
        error = error_of(shop.run("up"))
    assert error == f"Error: cannot write to {shop.data}: read-only file system"


def test_stack_whose_folder_is_a_file_says_so(shop: Checkout) -> None:
    shop.data.touch()
    try:
        error = error_of(shop.run("up"))
    finally:
        shop.data.unlink()
    assert error == f"Error: {shop.data} is in the way: it is not a folder"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_stack_of_another_user_says_so(shop: Checkout) -> None:
    shop.data.mkdir()
    os.chown(shop.data, 12345, 12345)
    try:
        error = error_of(shop.run("up"))
    finally:
        shop.data.rmdir()
    assert error == f"Error: {shop.data} belongs to another user; run this as that user"


def test_stack_of_a_project_that_is_not_there_says_so(shop: Checkout) -> None:
    command = shop.run("up", "--project", "shp")
    assert command.wait() == 2
    assert command.stderr.splitlines() == [
        "Error: shp is no project: there is no such folder",
        "-> cd PROJECT, or --project PROJECT",
    ]
    assert list(shop.folder.iterdir()) == []
