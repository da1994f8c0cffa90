"""Reads an Avro definition (JSON) into its Shape; names every mistake by its place inside the file. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from stream.schemas import scalars, shapes
from stream.schemas.misfit import Misfit, path_text, show
from stream.schemas.shapes import Field, Shape
from stream.schemas.values import MAX_PRECISION

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAMED = ("record", "enum", "fixed")
_KINDS = (*scalars.PRIMITIVES, *NAMED, "array", "map")


class BadDefinition(Exception):
    """Raised when an Avro definition is wrong; `where` is the place inside it, such as `fields[2].type`."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}" if where else message)


def compile_event(definition: Any) -> tuple[Shape, dict[str, Shape]]:
    """The shape of an event, a record, and of every type it names, by full name; raises BadDefinition."""
    if not isinstance(definition, dict) or definition.get("type") != "record":
        raise BadDefinition("type", "an event is a record: expected 'record'")
    compiler = _Compiler()
    return compiler.shape(definition, "", ""), compiler.named


class _Compiler:
    """Walks one definition. Knows the types it has named so far, and those it is still inside of."""

    def __init__(self) -> None:
        self.named: dict[str, Shape] = {}
        self.open: set[str] = set()

    def shape(self, definition: Any, where: str, namespace: str) -> Shape:
        if isinstance(definition, str):
            return self.reference(definition, where, namespace)
        if isinstance(definition, list):
            return self.union(definition, where, namespace)
        if not isinstance(definition, dict):
            raise BadDefinition(where, f"expected a type, got {show(definition)}")
        kind = definition.get("type")
        if kind in NAMED:
            return self.define(definition, where, namespace)
        if kind == "array":
            items = self.shape(definition.get("items"), _step(where, "items"), namespace)
            if items.floor == 0:
                raise BadDefinition(
                    _step(where, "items"), "items of no bytes: ten bytes could claim a billion"
                )
            return shapes.array(items)
        if kind == "map":
            return shapes.map_of(self.shape(definition.get("values"), _step(where, "values"), namespace))
        if not isinstance(kind, str) or kind not in scalars.PRIMITIVES:
            known = get_close_matches(kind, _KINDS, 1) if isinstance(kind, str) else []
            meant = f" (did you mean {known[0]!r}?)" if known else ""
            raise BadDefinition(_step(where, "type"), f"unknown type {show(kind)}{meant}")
        base = scalars.PRIMITIVES[kind]
        return _logical(base, definition, where) if "logicalType" in definition else base

    def reference(self, name: str, where: str, namespace: str) -> Shape:
        """A primitive type, or one that was named earlier in the file."""
        if name in scalars.PRIMITIVES:
            return scalars.PRIMITIVES[name]
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self.open:
            raise BadDefinition(where, f"recursive: {full} holds itself, so a small value could be very deep")
        if full not in self.named:
            near = get_close_matches(name, [*_KINDS, *self.named], 1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise BadDefinition(where, f"unknown type {show(name)}{meant}")
        return replace(self.named[full], wire=full)

    def union(self, branches: list[Any], where: str, namespace: str) -> Shape:
        made: list[Shape] = []
        for index, branch in enumerate(branches):
            place = f"{where}[{index}]"
            shape = self.shape(branch, place, namespace)
            if shape.branch == "union":
                raise BadDefinition(place, "a union inside a union")
            if shape.branch in (other.branch for other in made):
                raise BadDefinition(place, f"a second {shape.branch} in one union")
            made.append(shape)
        if not made:
            raise BadDefinition(where, "a union of nothing")
        return shapes.union(made)

    def define(self, definition: dict[str, Any], where: str, namespace: str) -> Shape:
        """A type with a name: record, enum or fixed."""
        full, inside = _full_name(definition, where, namespace)
        if full in self.named or full in self.open:
            raise BadDefinition(_step(where, "name"), f"{full} is defined twice")
        self.open.add(full)
        if definition["type"] == "record":
            shape = shapes.record(full, self.fields(definition, where, inside))
        elif definition["type"] == "enum":
            shape = scalars.enum(full, _symbols(definition, where))
        else:
            size = definition.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 2**20:
                raise BadDefinition(_step(where, "size"), "expected a number of bytes from 1 to 1048576")
            shape = scalars.fixed(full, size)
            if "logicalType" in definition:
                shape = _logical(shape, definition, where, size)
        self.open.discard(full)
        self.named[full] = shape
        return shape

    def fields(self, definition: dict[str, Any], where: str, namespace: str) -> list[Field]:
        listed = definition.get("fields")
        if not isinstance(listed, list):
            raise BadDefinition(_step(where, "fields"), "expected a list of fields")
        made: list[Field] = []
        for index, entry in enumerate(listed):
            place = _step(where, f"fields[{index}]")
            if not isinstance(entry, dict):
                raise BadDefinition(place, "expected an object with name and type")
            name = _checked_name(entry.get("name"), _step(place, "name"))
            if name in (field.name for field in made):
                raise BadDefinition(_step(place, "name"), f"a second field {name}")
            shape = self.shape(entry.get("type"), _step(place, "type"), namespace)
            if "default" not in entry:
                made.append(Field(name, shape))
                continue
            try:
                made.append(Field(name, shape, optional=True, default=shape.plain(entry["default"])))
            except Misfit as misfit:
                at = _step(place, path_text(["default", *misfit.path]))
                raise BadDefinition(at, f"expected {misfit.expected}, got {misfit.got}") from None
        return made


def _logical(base: Shape, definition: dict[str, Any], where: str, size: int | None = None) -> Shape:
    name = definition["logicalType"]
    place = _step(where, "logicalType")
    if name == "decimal" and (base.branch == "bytes" or size is not None):
        return scalars.decimal(base, *_precision(definition, where, size), size)
    shape = scalars.logical(base, name) if isinstance(name, str) else None
    if shape is None:
        known = ", ".join(sorted({"decimal", *(logical for _, logical in scalars.LOGICAL)}))
        raise BadDefinition(place, f"no logical type {show(name)} on {base.branch}; known: {known}")
    return shape


def _precision(definition: dict[str, Any], where: str, size: int | None) -> tuple[int, int]:
    """Precision and scale of a decimal, in digits."""
    precision, scale = definition.get("precision"), definition.get("scale", 0)
    most = MAX_PRECISION if size is None else len(str(2 ** (8 * size - 1))) - 1
    most = min(most, MAX_PRECISION)
    if not isinstance(precision, int) or isinstance(precision, bool) or not 1 <= precision <= most:
        raise BadDefinition(_step(where, "precision"), f"expected a number of digits from 1 to {most}")
    if not isinstance(scale, int) or isinstance(scale, bool) or not 0 <= scale <= precision:
        raise BadDefinition(_step(where, "scale"), f"expected a number of digits from 0 to {precision}")
    return precision, scale


def _symbols(definition: dict[str, Any], where: str) -> tuple[str, ...]:
    symbols, place = definition.get("symbols"), _step(where, "symbols")
    if not isinstance(symbols, list) or not symbols:
        raise BadDefinition(place, "expected a list of names")
    for index, symbol in enumerate(symbols):
        _checked_name(symbol, f"{place}[{index}]")
    if len(set(symbols)) != len(symbols):
        raise BadDefinition(place, "a symbol stands there twice")
    if "default" in definition and definition["default"] not in symbols:
        raise BadDefinition(_step(where, "default"), "expected one of the symbols")
    return tuple(symbols)


def _full_name(definition: dict[str, Any], where: str, namespace: str) -> tuple[str, str]:
    """The full name of a type, and the namespace that holds inside it."""
    given, place = definition.get("name"), _step(where, "name")
    own = definition.get("namespace", namespace)
    full = given if isinstance(given, str) and "." in given else f"{own}.{given}" if own else given
    for part in full.split(".") if isinstance(full, str) else [full]:
        _checked_name(part, place)
    assert isinstance(full, str)
    return full, full.rpartition(".")[0]


def _checked_name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadDefinition(where, f"expected a name of letters, digits and _, got {show(name)}")
    return name


def _step(where: str, step: str) -> str:
    return f"{where}.{step}" if where else step
