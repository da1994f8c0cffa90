"""Every version of an event reads what each one before it wrote, or the check says which does not and why."""

from __future__ import annotations

from typing import Any

import pytest

from stream.schemas import Schema, SchemaCatalog
from stream.schemas.compatibility import problem_reading, unreadable
from tests.support.avro import DECIMAL, INSTANT, field, version

SUIT = {"type": "enum", "name": "Suit", "symbols": ["red", "black"]}
WIDER_SUIT = {"type": "enum", "name": "Suit", "symbols": ["red", "black", "blue"]}
OTHER_SUIT = {"type": "enum", "name": "Suit", "symbols": ["red"], "default": "red"}
TWO, FOUR = ({"type": "fixed", "name": "Hash", "size": size} for size in (2, 4))


def line(*fields: Any, name: str = "Line") -> dict[str, Any]:
    return {"type": "array", "items": {"type": "record", "name": name, "fields": list(fields)}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int", "long"),
        ("int", "double"),
        ("float", "double"),
        ("string", ["null", "string"]),
        (["null", "string"], ["string", "null", "int"]),
        (SUIT, WIDER_SUIT),
        (WIDER_SUIT, OTHER_SUIT),
        ({**DECIMAL, "precision": 9, "scale": 2}, DECIMAL),
        ({"type": "long", "logicalType": "timestamp-micros"}, INSTANT),
        (line(field("a", "int")), line(field("b", "int", default=0), field("a", "long"))),
        (
            line(field("a", "int"), field("gone", {"type": "array", "items": "double"})),
            line(field("a", "int")),
        ),
    ],
)
def test_a_change_that_keeps_old_records_readable_passes(before: Any, after: Any) -> None:
    assert problem_of(before, after) is None


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("long", "int", "Schema mismatch"),
        ("string", "int", "Schema mismatch"),
        (["null", "string"], "string", "schema mismatch"),
        (WIDER_SUIT, SUIT, "blue not found in reader symbol list Suit"),
        (FOUR, TWO, "Schema mismatch"),
        (line(field("a", "int")), line(field("a", "int"), field("b", "int")), "No default value for field b"),
        (line(field("a", "int")), line(field("a", "int"), name="Row"), "Schema mismatch"),
        # The same Avro type below, so that Avro's own rules see nothing wrong:
        ("long", INSTANT, "x: expected a time with a zone"),
        (INSTANT, "long", "x: expected long, read 1970-01-01"),
        (DECIMAL, "bytes", "x: expected bytes, or base64 text, read 0.0000 (Decimal)"),
        (DECIMAL, {**DECIMAL, "precision": 9, "scale": 2},
         "x: expected a number of at most 7 digits and 2 decimals"),
        ("string", {"type": "string", "logicalType": "uuid"}, "x: expected a UUID"),
        (line(field("a", "long")), line(field("a", INSTANT)), "x[0].a: expected a time with a zone"),
    ],
)  # fmt: skip
def test_a_change_that_loses_old_records_is_told(before: Any, after: Any, words: str) -> None:
    problem = problem_of(before, after)
    assert problem is not None
    assert words in problem


def problem_of(before: Any, after: Any) -> str | None:
    return problem_reading(version(1, "A", field("x", before)), version(2, "A", field("x", after)))


def test_each_version_is_tried_with_all_before_it() -> None:
    """The second drops the field and so reads the first; the third brings it back with another type."""
    versions = [
        version(1, "A", field("x", "string")),
        version(2, "A"),
        version(5, "A", field("x", "int", default=0)),
        version(3, "B", field("x", "string")),
    ]
    problems = unreadable(SchemaCatalog(versions))
    assert len(problems) == 1
    assert problems[0].startswith("schemas/0005-A.avsc: does not read 0001-A.avsc: Schema mismatch")


def test_a_field_added_without_a_default_is_told() -> None:
    problem = problem_reading(version(1, "A"), version(2, "A", field("x", "int")))
    assert problem == "No default value for field x in A"


def edges(schema: Schema) -> int:
    return len(schema.shape.edges)


def test_every_symbol_branch_and_boundary_is_tried() -> None:
    assert edges(version(1, "A", field("x", WIDER_SUIT))) == 3
    assert edges(version(1, "A", field("x", ["null", SUIT]), field("y", "int"))) == 3
    assert edges(version(1, "A", field("x", ["null", "string", WIDER_SUIT]))) == 7
    assert edges(version(1, "A")) == 1
