"""`stream schema new` and `stream schema check`, run as the command line runs them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream.cli import main
from tests.support.avro import field

ROOT = Path(__file__).resolve().parents[2]
TOPICS = '[orders]\nevents = ["Paid", "Placed"]\npartitions = 3\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "topics.toml").write_text(TOPICS)
    write(tmp_path, "0001-Paid.avsc", field("amount", "int"))
    write(tmp_path, "0002-Placed.avsc", field("sku", "string"))
    return tmp_path


def write(project: Path, name: str, *fields: Any) -> None:
    event = name.partition("-")[2].removesuffix(".avsc")
    definition = {"type": "record", "name": event, "fields": list(fields)}
    (project / "schemas" / name).write_text(json.dumps(definition))


def stream(project: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["schema", *words, "--project", str(project)])


def checked(project: Path, *options: str) -> Result:
    return stream(project, "check", *options)


def refused(project: Path, *options: str) -> str:
    result = checked(project, *options)
    assert result.exit_code == 5
    assert result.stdout == ""
    assert result.stderr.startswith(f"Error: {project}/schemas/")
    return result.stderr.replace(f"{project}/schemas/", "")


def test_the_project_of_this_repository_is_sound(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "schemas", tmp_path / "schemas")
    result = checked(tmp_path, "--locked")
    assert result.exit_code == 0, result.stderr
    assert "OrderPlaced  0001 0010  in orders" in result.stdout


def test_a_sound_project_passes_and_its_files_are_locked(project: Path) -> None:
    result = checked(project)
    assert result.exit_code == 0
    assert result.stdout == "Paid  0001  in orders\nPlaced  0002  in orders\n"
    assert "2 schemas of 2 events: every version reads its predecessors" in result.stderr
    lock = (project / "schemas" / "schemas.lock").read_text()
    assert [line.split()[:2] for line in lock.splitlines() if line[0] != "#"] == [
        ["0001", "Paid"],
        ["0002", "Placed"],
    ]
    assert checked(project).exit_code == 0
    assert (project / "schemas" / "schemas.lock").read_text() == lock


def test_the_installed_command_exits_with_5_and_keeps_stdout_for_data(project: Path) -> None:
    write(project, "0003-Paid.avsc", field("total", "int"))
    command = [Path(sys.executable).with_name("stream"), "schema", "check", "--project", project]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith(f"Error: {project}/schemas/0003-Paid.avsc: does not read 0001-Paid.avsc")


def test_new_copies_the_last_version_under_the_next_number(project: Path) -> None:
    result = stream(project, "new", "Paid")
    path = project / "schemas" / "0003-Paid.avsc"
    assert result.exit_code == 0
    assert result.stdout == f"{path}\n"
    assert path.read_text() == (project / "schemas" / "0001-Paid.avsc").read_text()
    assert checked(project).exit_code == 0


def test_new_makes_the_first_version_of_a_new_event(project: Path) -> None:
    result = stream(project, "new", "Shipped")
    assert result.stdout == f"{project}/schemas/0003-Shipped.avsc\n"
    assert "in no topic" in refused(project)
    (project / "schemas" / "topics.toml").write_text(TOPICS.replace('"Paid"', '"Paid", "Shipped"'))
    assert checked(project).exit_code == 0


def test_a_number_whose_locked_file_is_gone_is_not_given_again(project: Path) -> None:
    write(project, "0007-Placed.avsc", field("sku", "string"))
    checked(project)
    (project / "schemas" / "0007-Placed.avsc").unlink()
    assert stream(project, "new", "Paid").stdout.endswith("0008-Paid.avsc\n")


@pytest.mark.parametrize("name", ["order placed", "1Placed", "../Placed", "", "Plåced"])
def test_new_refuses_a_name_that_avro_does_not_know(project: Path, name: str) -> None:
    result = stream(project, "new", name)
    assert result.exit_code == 2
    assert "expected an event name such as OrderPlaced" in result.stderr


def test_a_folder_that_is_no_project_is_refused(tmp_path: Path) -> None:
    assert checked(tmp_path).exit_code == 2


def test_a_changed_old_file_is_refused_even_where_it_would_still_be_read(project: Path) -> None:
    checked(project)
    write(project, "0001-Paid.avsc", field("amount", "long"))
    assert "0001-Paid.avsc: changed after it was locked" in refused(project)


def test_white_space_and_line_ends_are_no_change(project: Path) -> None:
    checked(project)
    path = project / "schemas" / "0001-Paid.avsc"
    path.write_bytes(json.dumps(json.loads(path.read_text()), indent=4).replace("\n", "\r\n").encode())
    assert checked(project).exit_code == 0


def test_a_removed_locked_file_is_refused(project: Path) -> None:
    write(project, "0003-Paid.avsc", field("amount", "int"))
    checked(project)
    (project / "schemas" / "0001-Paid.avsc").unlink()
    assert "0001-Paid.avsc: is gone, but locked" in refused(project)


def test_a_version_that_does_not_read_its_predecessor_is_refused_and_not_locked(project: Path) -> None:
    write(project, "0003-Paid.avsc", field("total", "int"))
    assert "0003-Paid.avsc: does not read 0001-Paid.avsc: No default value for field total" in refused(
        project
    )
    assert not (project / "schemas" / "schemas.lock").exists()


def test_all_that_is_wrong_is_told_at_once(project: Path) -> None:
    checked(project)
    write(project, "0001-Paid.avsc", field("amount", "string"))
    write(project, "0003-Paid.avsc", field("amount", "int"))
    write(project, "0004-Placed.avsc", field("sku", "int"))
    message = refused(project)
    assert "0001-Paid.avsc: changed" in message
    assert "0003-Paid.avsc: does not read 0001-Paid.avsc" in message
    assert "0004-Placed.avsc: does not read 0002-Placed.avsc" in message


def test_a_duplicate_number_is_refused(project: Path) -> None:
    write(project, "0001-Placed.avsc", field("sku", "string"))
    assert "0001-Placed.avsc: number 1 is taken by 0001-Paid.avsc" in refused(project)


def test_an_event_in_no_topic_or_in_two_is_refused(project: Path) -> None:
    topics = project / "schemas" / "topics.toml"
    topics.write_text('[orders]\nevents = ["Paid"]\npartitions = 3\n')
    assert "topics.toml: Placed in no topic" in refused(project)
    topics.write_text(TOPICS + '[more]\nevents = ["Paid"]\npartitions = 3\n')
    assert "topics.toml: more.events: Paid is in orders already" in refused(project)


def test_a_recursive_schema_is_refused(project: Path) -> None:
    write(project, "0003-Paid.avsc", field("amount", "int"), field("before", ["null", "Paid"], default=None))
    assert "0003-Paid.avsc: fields[1].type[1]: recursive: Paid holds itself" in refused(project)


def test_with_locked_nothing_is_written_and_a_new_file_is_refused(project: Path) -> None:
    assert "0001-Paid.avsc: has no line in schemas.lock" in refused(project, "--locked")
    assert not (project / "schemas" / "schemas.lock").exists()
    checked(project)
    assert checked(project, "--locked").exit_code == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("<<<<<<< ours", "line 5: expected number, name and sha256"),
        (f"0001 Paid {'0' * 64}", "line 5: number 0001 stands there twice"),
    ],
)
def test_a_lock_that_was_merged_badly_is_refused_by_line(project: Path, line: str, words: str) -> None:
    checked(project)
    lock = project / "schemas" / "schemas.lock"
    lock.write_text(lock.read_text() + line + "\n")
    assert f"schemas.lock: {words}" in refused(project)
