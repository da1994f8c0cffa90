"""Shape: an Avro type as the function that checks and lowers its values, made of its parts' shapes. Pure.

A type is compiled once, at load, into a chain of closures; walking its JSON definition again for each event
took three times as long. Mistakes in an event come out as Misfit with the path to the wrong value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from stream.schemas.misfit import CLAMP, Misfit, Shown, show
from stream.schemas.values import Lower, lower_text

NULL = ("null", None)  # fastavro's way to name the branch of a union


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record. With a default it may be left out; `default` is lowered already."""

    name: str
    shape: Shape
    optional: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class Shape:
    """One type. `lower` takes a value to its wire form; `plain` does so for the `default` of a schema."""

    branch: str  # its name inside a union
    expected: str  # what messages call it
    lower: Lower
    plain: Lower
    wire: Any  # the definition without logical types, with which fastavro writes what `lower` returns
    json: tuple[str, ...]  # what jsonb_typeof() may say of a value that fits
    natives: tuple[type, ...]  # Python types it is the first choice for, in a union
    edges: tuple[Any, ...]  # lowered values at the edges of the type, for trying out
    floor: int = 1  # bytes of the shortest value
    # Whether fastavro notices the end of the bytes while it *skips* such a value. It does where it reads a
    # length or a whole number; over booleans, floats and fixed it goes on for as many rounds as a count says.
    stops: bool = True
    endless: bool = False  # holds an array whose items do not stop
    fields: tuple[Field, ...] = ()


def array(items: Shape) -> Shape:
    return Shape(
        "array",
        "a list",
        _lower_array(items.lower),
        _lower_array(items.plain),
        {"type": "array", "items": items.wire},
        ("array",),
        (list, tuple),
        edges=([], list(items.edges)),
        endless=items.endless or not items.stops,
    )


def _lower_array(item: Lower) -> Lower:
    def lower(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise Misfit("a list", value)
        result: list[Any] = []
        try:
            for entry in value:
                result.append(item(entry))
        except Misfit as misfit:
            misfit.path.insert(0, len(result))
            raise
        return result

    return lower


def map_of(entries: Shape) -> Shape:
    return Shape(
        "map",
        "an object",
        _lower_map(entries.lower),
        _lower_map(entries.plain),
        {"type": "map", "values": entries.wire},
        ("object",),
        (dict,),
        edges=({}, {f"{index}": edge for index, edge in enumerate(entries.edges)}),
        endless=entries.endless,  # a map's own entries stop: each begins with the length of its name
    )


def _lower_map(item: Lower) -> Lower:
    def lower(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Misfit("an object", value)
        result = {}
        for name, entry in value.items():
            lower_text(name)
            try:
                result[name] = item(entry)
            except Misfit as misfit:
                misfit.path.insert(0, name)
                raise
        return result

    return lower


def record(name: str, fields: Sequence[Field]) -> Shape:
    defaults = {field.name: field.default for field in fields if field.optional}
    return Shape(
        name,
        "an object",
        _lower_record([(field.name, field.shape.lower) for field in fields], defaults),
        _lower_record([(field.name, field.shape.plain) for field in fields], defaults),
        {
            "type": "record",
            "name": name,
            "fields": [{"name": field.name, "type": field.shape.wire} for field in fields],
        },
        ("object",),
        (dict,),
        edges=tuple(_edges(fields)),
        floor=sum(field.shape.floor for field in fields),
        stops=any(field.shape.stops for field in fields),
        endless=any(field.shape.endless for field in fields),
        fields=tuple(fields),
    )


def _edges(fields: Sequence[Field]) -> list[dict[str, Any]]:
    """As many records as the field with the most edges has; not every combination of them."""
    count = max((len(field.shape.edges) for field in fields), default=1)
    return [
        {field.name: field.shape.edges[index % len(field.shape.edges)] for field in fields}
        for index in range(count)
    ]


def _lower_record(fields: Sequence[tuple[str, Lower]], defaults: Mapping[str, Any]) -> Lower:
    names = tuple(name for name, _ in fields)

    def lower(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) and not isinstance(value, Mapping):
            raise Misfit("an object", value)
        result: dict[str, Any] = {}
        left_out = 0
        name = ""
        try:
            for name, shape in fields:
                if name in value:
                    result[name] = shape(value[name])
                elif name in defaults:
                    result[name] = defaults[name]
                    left_out += 1
                else:
                    raise Misfit("a value", Shown("nothing: the field is missing"))
        except Misfit as misfit:
            misfit.path.insert(0, name)
            raise
        if len(value) != len(fields) - left_out:
            raise _unknown_field(value, names)
        return result

    return lower


def _unknown_field(value: Mapping[Any, Any], names: tuple[str, ...]) -> Misfit:
    unknown = next(name for name in value if name not in names)
    if not isinstance(unknown, str):
        return Misfit("text as the name of a field", unknown)
    near = get_close_matches(unknown[:CLAMP], names, 1)
    known = f"did you mean {near[0]}?" if near else "known: " + (", ".join(names[:12]) or "none")
    misfit = Misfit(f"no field of that name ({known})", show(value[unknown]))
    misfit.path.insert(0, unknown)
    return misfit


def union(branches: Sequence[Shape]) -> Shape:
    expected = " or ".join(branch.expected for branch in branches)
    return Shape(
        "union",
        expected,
        _lower_union([(branch.branch, branch.lower, branch) for branch in branches], expected),
        _lower_union([(branch.branch, branch.plain, branch) for branch in branches], expected),
        [branch.wire for branch in branches],
        tuple(sorted({kind for branch in branches for kind in branch.json})),
        (),
        edges=tuple((branch.branch, edge) for branch in branches for edge in branch.edges),
        endless=any(branch.endless for branch in branches),
    )


def _lower_union(branches: Sequence[tuple[str, Lower, Shape]], expected: str) -> Lower:
    others = [branch for branch in branches if branch[0] != "null"]
    if len(others) == 1 and len(branches) == 2:
        return _lower_nullable(others[0][0], others[0][1], expected)
    first_choice: dict[type, list[tuple[str, Lower, Shape]]] = {}
    for branch in branches:
        for native in branch[2].natives:
            first_choice.setdefault(native, []).append(branch)

    def lower(value: Any) -> tuple[str, Any]:
        choices = first_choice.get(type(value), ())
        deepest: Misfit | None = None
        for name, shape, _ in [*choices, *(branch for branch in branches if branch not in choices)]:
            try:
                return (name, shape(value))
            except Misfit as misfit:
                if deepest is None or len(misfit.path) > len(deepest.path):
                    deepest = misfit
        assert deepest is not None  # a union has branches
        if not deepest.path:
            deepest = Misfit(expected, value)
        raise deepest

    return lower


def _lower_nullable(name: str, shape: Lower, expected: str) -> Lower:
    def lower(value: Any) -> tuple[str, Any]:
        if value is None:
            return NULL
        try:
            return (name, shape(value))
        except Misfit as misfit:
            if not misfit.path:
                misfit.expected = f"null or {misfit.expected}"
            raise

    return lower
