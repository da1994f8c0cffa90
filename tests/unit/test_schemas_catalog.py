"""A wrong schema file is refused with its name and the place inside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream.errors import SchemaError, UnknownEventType
from stream.schemas import AvroCodec, SchemaCatalog
from tests.support.avro import field


def write(folder: Path, name: str, content: Any) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")


def record(name: str, *fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def error_of(folder: Path) -> str:
    with pytest.raises(SchemaError) as caught:
        AvroCodec(SchemaCatalog.load(folder))
    message = str(caught.value)
    assert message.startswith(caught.value.path)
    return message.removeprefix(str(folder) + "/")


def error_in(folder: Path, *fields: Any) -> str:
    write(folder, "0001-Thing.avsc", record("Thing", *fields))
    return error_of(folder).removeprefix("0001-Thing.avsc: ")


def test_a_catalog_knows_versions_names_and_numbers(tmp_path: Path) -> None:
    write(tmp_path, "0001-Paid.avsc", record("Paid"))
    write(tmp_path, "0002-Placed.avsc", record("Placed", namespace="shop.orders"))
    write(tmp_path, "0010-Paid.avsc", record("Paid", field("amount", "int")))
    write(tmp_path, "topics.toml", "")
    write(tmp_path, ".0011-Paid.avsc.swp", "")
    catalog = SchemaCatalog.load(tmp_path)
    assert catalog.names() == ["Paid", "Placed"]
    assert [schema.number for schema in catalog.versions("Paid")] == [1, 10]
    assert catalog.latest("Paid") is catalog.by_number(10)
    assert catalog.by_number(2).path == tmp_path / "0002-Placed.avsc"
    with pytest.raises(KeyError):
        catalog.by_number(3)
    with pytest.raises(
        UnknownEventType, match=r"expected one of Paid, Placed, got 'Payd' \(str\) \(did you mean Paid"
    ):
        catalog.latest("Payd")


def test_a_folder_without_schemas_is_an_empty_catalog(tmp_path: Path) -> None:
    catalog = SchemaCatalog.load(tmp_path)
    assert catalog.names() == []
    with pytest.raises(UnknownEventType, match="there is no schema yet"):
        catalog.latest("Paid")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"nowhere: no such folder\n-> stream init"):
        SchemaCatalog.load(tmp_path / "nowhere")


def test_a_duplicate_number_names_both_files(tmp_path: Path) -> None:
    write(tmp_path, "0001-Paid.avsc", record("Paid"))
    write(tmp_path, "00001-Placed.avsc", record("Placed"))
    assert error_of(tmp_path) == "0001-Paid.avsc: number 1 is taken by 00001-Placed.avsc"


@pytest.mark.parametrize(
    "name", ["Paid.avsc", "1-Paid.avsc", "0001_Paid.avsc", "0000-Paid.avsc", "9999999999-Paid.avsc"]
)
def test_a_file_name_without_a_usable_number_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, record("Paid"))
    assert error_of(tmp_path) == f"{name}: expected a name such as 0001-OrderPlaced.avsc"


def test_the_name_inside_must_be_the_files(tmp_path: Path) -> None:
    write(tmp_path, "0001-Paid.avsc", record("Payed"))
    assert error_of(tmp_path) == "0001-Paid.avsc: name: expected Paid, as in the file's name, got Payed"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is no JSON: Expecting property name"),
        ("[" * 100_000, "is no JSON:"),
        ('"string"', "expected a JSON object"),
        ({"type": "enum", "name": "Paid", "symbols": ["a"]}, "type: an event is a record"),
        ({"type": "record", "fields": []}, "name: expected a name of letters, digits and _, got null"),
        ({"type": "record", "name": "Paid"}, "fields: expected a list of fields"),
        (record("a.b-c.Paid"), "name: expected a name of letters, digits and _, got 'b-c'"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_event_is_refused(tmp_path: Path, content: Any, words: str) -> None:
    write(tmp_path, "0001-Paid.avsc", content)
    assert error_of(tmp_path).startswith(f"0001-Paid.avsc: {words}")


def test_a_file_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0001-Paid.avsc").write_bytes(b'{"name": "\xff"}')
    assert error_of(tmp_path).startswith("0001-Paid.avsc: is no JSON: 'utf-8' codec")


DECIMAL = {"type": "bytes", "logicalType": "decimal"}


@pytest.mark.parametrize(
    ("type", "message"),
    [
        ("strin", "fields[0].type: unknown type 'strin' (str) (did you mean 'string'?)"),
        ({"type": "strin"}, "fields[0].type.type: unknown type 'strin' (str) (did you mean 'string'?)"),
        (7, "fields[0].type: expected a type, got 7 (int)"),
        (None, "fields[0].type: expected a type, got null"),
        ({"type": ["null"]}, "fields[0].type.type: unknown type a list of 1"),
        ({"type": "array"}, "fields[0].type.items: expected a type, got null"),
        ({"type": "array", "items": ["int", 1]}, "fields[0].type.items[1]: expected a type, got 1 (int)"),
        ({"type": "map", "values": "Thing2"}, "fields[0].type.values: unknown type 'Thing2' (str)"),
        ([], "fields[0].type: a union of nothing"),
        (["int", ["null"]], "fields[0].type[1]: a union inside a union"),
        (["int", "int"], "fields[0].type[1]: a second int in one union"),
        (["long", {"type": "long", "logicalType": "timestamp-millis"}],
         "fields[0].type[1]: a second long in one union"),
        ({"type": "enum", "name": "E", "symbols": []}, "fields[0].type.symbols: expected a list of names"),
        ({"type": "enum", "name": "E", "symbols": ["a", "a b"]},
         "fields[0].type.symbols[1]: expected a name of letters, digits and _, got 'a b' (str)"),
        ({"type": "enum", "name": "E", "symbols": ["a", "a"]},
         "fields[0].type.symbols: a symbol stands there twice"),
        ({"type": "enum", "name": "E", "symbols": ["a"], "default": "b"},
         "fields[0].type.default: expected one of the symbols"),
        ({"type": "fixed", "name": "F"}, "fields[0].type.size: expected a number of bytes from 1 to 1048576"),
        ({"type": "fixed", "name": "F", "size": 0},
         "fields[0].type.size: expected a number of bytes from 1 to 1048576"),
        ({"type": "record", "name": "Thing", "fields": []}, "fields[0].type.name: Thing is defined twice"),
        ({"type": "record", "name": "R", "fields": [field("x", "int"), field("x", "int")]},
         "fields[0].type.fields[1].name: a second field x"),
        ({"type": "record", "name": "R", "fields": ["x"]},
         "fields[0].type.fields[0]: expected an object with name and type"),
        ({"type": "long", "logicalType": "timestamp-milis"},
         "fields[0].type.logicalType: no logical type 'timestamp-milis' (str) on long; known: date, "),
        ({"type": "int", "logicalType": "timestamp-millis"},
         "fields[0].type.logicalType: no logical type 'timestamp-millis' (str) on int"),
        ({"type": "long", "logicalType": 7}, "fields[0].type.logicalType: no logical type 7 (int) on long"),
        (DECIMAL, "fields[0].type.precision: expected a number of digits from 1 to 1000"),
        ({**DECIMAL, "precision": 4, "scale": 5},
         "fields[0].type.scale: expected a number of digits from 0 to 4"),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 10},
         "fields[0].type.precision: expected a number of digits from 1 to 9"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_named_by_its_place(tmp_path: Path, type: Any, message: str) -> None:
    assert error_in(tmp_path, field("x", type)).startswith(message)


@pytest.mark.parametrize(
    ("type", "default", "message"),
    [
        ("int", "1", "fields[0].default: expected int, got '1' (str)"),
        ("string", None, "fields[0].default: expected text, got null"),
        (["string", "int"], None, "fields[0].default: expected text or int, got null"),
        ("bytes", "\u0100", "fields[0].default: expected text of one character a byte, got 'Ā' (str)"),
        ({"type": "array", "items": "int"}, [1, "x"], "fields[0].default[1]: expected int, got 'x' (str)"),
        ({"type": "record", "name": "R", "fields": [field("a", "int")]}, {},
         "fields[0].default.a: expected a value, got nothing: the field is missing"),
    ],
)  # fmt: skip
def test_a_default_that_does_not_fit_is_named_by_its_place(
    tmp_path: Path, type: Any, default: Any, message: str
) -> None:
    assert error_in(tmp_path, field("x", type, default=default)) == message


def test_a_recursive_type_is_refused(tmp_path: Path) -> None:
    direct = error_in(tmp_path, field("child", ["null", "Thing"], default=None))
    assert direct == "fields[0].type[1]: recursive: Thing holds itself, so a small value could be very deep"
    node = {"type": "record", "name": "Node", "fields": [field("next", {"type": "array", "items": "Node"})]}
    assert error_in(tmp_path, field("root", node)).startswith(
        "fields[0].type.fields[0].type.items: recursive: Node"
    )


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "record", "name": "Empty", "fields": []},
        {"type": "record", "name": "Nulls", "fields": [field("a", "null"), field("b", "null")]},
    ],
)
def test_a_list_of_items_without_bytes_is_refused(tmp_path: Path, items: Any) -> None:
    message = error_in(tmp_path, field("x", {"type": "array", "items": items}))
    assert message.startswith("fields[0].type.items: items of no bytes")


def test_namespaces_are_followed(tmp_path: Path) -> None:
    place = {"type": "record", "name": "Place", "fields": [field("x", "int")]}
    other = {"type": "enum", "name": "other.Suit", "symbols": ["red"]}
    fields = [field("a", place), field("b", "Place"), field("c", "shop.Place"), field("d", other)]
    write(tmp_path, "0001-Thing.avsc", record("Thing", *fields, field("e", "other.Suit"), namespace="shop"))
    own = AvroCodec(SchemaCatalog.load(tmp_path))
    data = {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 3}, "d": "red", "e": "red"}
    assert own.decode(own.encode("Thing", data)) == ("Thing", data)
    write(tmp_path, "0001-Thing.avsc", record("Thing", *fields, field("e", "Suit"), namespace="shop"))
    assert error_of(tmp_path).startswith("0001-Thing.avsc: fields[4].type: unknown type 'Suit' (str)")


@pytest.mark.parametrize(
    "annotated",
    [
        {"name": "p", "type": "bytes", "logicalType": "decimal"},
        {"name": "p", "type": ["null", "bytes"], "logicalType": "decimal", "precision": 9, "scale": 2},
        {"name": "p", "type": "long", "meta": {"type": ["x"], "logicalType": "decimal", "precision": 9}},
    ],
)
def test_a_logical_type_where_avro_ignores_it_is_ignored(tmp_path: Path, annotated: dict[str, Any]) -> None:
    write(tmp_path, "0001-Thing.avsc", record("Thing", annotated))
    AvroCodec(SchemaCatalog.load(tmp_path))
