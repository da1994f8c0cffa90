"""Where an inspection begins, and what it makes of a record that nobody vouches for."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import click
import pytest

from stream.cli.positions import place, where
from stream.cli.recordtext import hex_lines, line, page
from stream.errors import UsageError
from stream.inspection import BEGINNING, Position, begin, inspected, record_form
from stream.kafka.scans import UNREADABLE
from stream.project import Project
from tests.support.small import make_project, record

NOON = datetime(2026, 8, 2, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("small") / "project")


def parsed(*texts: str) -> tuple[Position | None, datetime | None]:
    command = click.Command("inspect")
    with click.Context(command):
        return where(click.get_current_context(), click.Option(["-o"]), texts)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], (None, None)),
        (["beginning"], (BEGINNING, None)),
        (["end"], (Position("end"), None)),
        (["0"], (Position("offset", 0), None)),
        (["1207"], (Position("offset", 1207), None)),
        (["-5"], (Position("back", 5), None)),
        (["s@1785672000000"], (Position("time", time=NOON), None)),
        (["s@2026-08-02T12:00"], (Position("time", time=NOON), None)),
        (["s@2026-08-02T14:00+02:00"], (Position("time", time=NOON), None)),
        (["e@2026-08-02T12:00"], (None, NOON)),
        (["-5", "e@1785672000000"], (Position("back", 5), NOON)),
    ],
)
def test_the_grammar_of_positions_is_kcat_s(
    texts: list[str], expected: tuple[Position | None, datetime | None]
) -> None:
    assert parsed(*texts) == expected


def test_a_time_may_be_said_as_how_long_ago() -> None:
    start, _ = parsed("s@2h")
    assert start is not None and start.time is not None
    assert abs(datetime.now(UTC) - timedelta(hours=2) - start.time) < timedelta(seconds=30)


@pytest.mark.parametrize(
    "texts",
    [["middle"], ["s@soon"], ["1.5"], ["--5"], ["9" * 25], ["0", "1"], ["e@2h", "e@1h"], ["e@"], ["٣"]],
)
def test_what_is_no_position_is_refused(texts: list[str]) -> None:
    with pytest.raises(click.BadParameter):
        parsed(*texts)


def test_stored_is_refused_with_the_place_where_a_group_s_offsets_are() -> None:
    with pytest.raises(UsageError) as refused:
        parsed("stored")
    assert refused.value.hint == "stream groups list"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders[3]@1207", ("orders", 3, 1207)),
        ("email.retry[0]@0", ("email.retry", 0, 0)),
        ("orders", None),
        ("orders[x]@1", None),
        ("orders[1]@", None),
        ("[1]@1", None),
    ],
)
def test_a_position_names_one_record(text: str, expected: tuple[str, int, int] | None) -> None:
    assert place(text) == expected


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (BEGINNING, 10),
        (Position("end"), 20),
        (Position("offset", 15), 15),
        (Position("back", 3), 17),
        (Position("back", 300), 10),
        (Position("time", time=NOON), 14),
    ],
)
def test_a_place_in_the_log_is_taken_as_it_is_said(start: Position, first: int) -> None:
    assert begin(start, 10, 20, lambda _: 14) == (first, None)


def test_a_place_outside_the_log_is_moved_into_it_and_told() -> None:
    before, note = begin(Position("offset", 3), 10, 20, lambda _: 14)
    assert (before, note) == (10, "offset 3 is not in the log any more, its first is 10")
    behind, note = begin(Position("offset", 21), 10, 20, lambda _: 14)
    assert (behind, note) == (20, "offset 21 is not in the log yet, its end is 20")


def test_a_record_is_decoded_with_the_number_of_its_schema(project: Project) -> None:
    id = uuid.uuid4()
    one = inspected(record(project, "1", 7, type="Listed", id=id), project.codec)
    assert (one.event_id, one.type, one.schema, one.schema_name) == (id, "Listed", 2, "Listed")
    assert (one.data, one.problem) == ({"n": 7}, None)


@pytest.mark.parametrize(
    ("value", "schema", "problem"),
    [
        (b"", None, "empty: "),
        (b"hello", None, "no-magic: "),
        (b"\x00\x00\x00", None, "truncated: "),
        (b"\x00\x00\x00\x00\x63\x02", 99, "unknown-schema: "),
        (b"\x00\x00\x00\x00\x01", 1, "truncated: "),
        (b"\x00\x00\x00\x00\x01\x02\x02", 1, "trailing: "),
    ],
)
def test_what_cannot_be_decoded_is_shown_with_the_reason_and_its_bytes(
    project: Project, value: bytes, schema: int | None, problem: str
) -> None:
    one = inspected(record(project, "1", value=value), project.codec)
    assert (one.data, one.schema) == (None, schema)
    assert (one.problem or "").startswith(problem)
    assert record_form(one)["value"] == "\\x" + value.hex()
    assert f"cannot be decoded: {problem}" in line(one)
    assert any(f"cannot be decoded: {problem}" in each for each in page(one))


def test_headers_that_cannot_be_read_are_a_problem_of_the_record(project: Project) -> None:
    one = inspected(record(project, "1", headers=UNREADABLE), project.codec)
    assert one.problem == "a header's name is no UTF-8"


def test_no_control_character_of_a_record_reaches_a_terminal(project: Project) -> None:
    hostile = "\x1b]0;gone\x07\r\n"
    headers = [("ce_type", hostile.encode()), (hostile, hostile.encode()), ("null", None)]
    one = inspected(record(project, hostile, headers=headers, value=b"\x1b[2J\n"), project.codec)
    for text in (line(one), line(one, hexed=True), *page(one), *page(one, hexed=True)):
        assert text.isprintable()


def test_a_record_without_value_key_type_and_time_is_shown(project: Project) -> None:
    one = inspected(record(project, None, value=None, headers=[], timestamp=-1), project.codec)
    form = record_form(one)
    assert (form["key"], form["data"], form["value"], form["timestamp"], form["problem"]) == (None,) * 5
    assert "(no value)" in line(one)
    assert "payload: none" in list(page(one))


def test_hex_has_sixteen_bytes_a_line_and_their_text() -> None:
    first, second = hex_lines(b"order 536365 is \x00\xff")
    assert first == "00000000  6f 72 64 65 72 20 35 33 36 33 36 35 20 69 73 20  order 536365 is "
    assert second == f"00000010  {'00 ff':<47}  .."
