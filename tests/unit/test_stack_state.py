"""What the embedded stack remembers: kept for its owner alone, refused when damaged, one writer at a time."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from stream.errors import StreamError
from stream.stack import state
from stream.stack.state import State


def silent(_: str) -> None:
    pass


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    saved = State(kafka_port=9092, postgres_port=5432, kafka_pid=7)
    saved.save(tmp_path)
    assert state.load(tmp_path) == saved


def test_the_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    State().save(tmp_path)
    assert (tmp_path / state.FILE).stat().st_mode & 0o777 == 0o600


def test_each_stack_has_a_password_of_its_own_that_is_not_shown() -> None:
    first, second = State(), State()
    assert first.password != second.password
    assert first.password not in repr(first)


def test_there_is_none_in_an_empty_folder(tmp_path: Path) -> None:
    assert state.load(tmp_path) is None
    assert state.load(tmp_path / "missing") is None


def test_what_another_version_wrote_beside_is_ignored(tmp_path: Path) -> None:
    (tmp_path / state.FILE).write_text(json.dumps({"kafka_port": 1, "password": "x", "colour": "red"}))
    assert state.load(tmp_path) == State(kafka_port=1, password="x")


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_a_damaged_file_is_named_with_the_way_out(tmp_path: Path, content: str) -> None:
    (tmp_path / state.FILE).write_text(content)
    with pytest.raises(StreamError) as caught:
        state.load(tmp_path)
    assert str(tmp_path / state.FILE) in caught.value.message
    assert caught.value.hint is not None and f"rm -r {tmp_path}" in caught.value.hint


@pytest.mark.parametrize("name", ["kafka", "postgres"])
def test_data_without_its_state_is_refused_not_guessed_at(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(StreamError, match=f"{name} is there but {state.FILE} is not"):
        state.load_or_new(tmp_path)


def test_a_folder_everybody_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(StreamError, match="everybody can write"):
        state.make_folder(tmp_path)


def test_a_new_folder_is_closed_to_others(tmp_path: Path) -> None:
    state.make_folder(tmp_path / "deep" / "er")
    assert (tmp_path / "deep" / "er").stat().st_mode & 0o777 == 0o700


def test_the_second_holder_of_the_lock_says_so_and_waits(tmp_path: Path) -> None:
    said: list[str] = []
    order: list[str] = []
    waiting = threading.Event()

    def progress(line: str) -> None:
        said.append(line)
        waiting.set()

    def second() -> None:
        with state.locked(tmp_path, progress):
            order.append("second")

    with state.locked(tmp_path, silent):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert str(tmp_path) in said[0]
