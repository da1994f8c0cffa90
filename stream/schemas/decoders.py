"""Decoders: of each schema a function, made at load, that reads what a writer writes with it.

fastavro asks of each value what its type is, though the schema says it once and for all: that was half of what an event
costs a group. Here it is asked at load, and what remains is the source of a function without the questions.

Such a function knows nothing of errors. Bytes that are not as they should be make it raise something, or end elsewhere
than they do; then fastavro reads them from the start and says what they are. What is right but rare is left to it, too:
lists in blocks that tell their size in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any

from stream.schemas.scalars import PRIMITIVES

# Bytes and a position: the value there, and where it ends.
Decoder = Callable[[bytes, int], tuple[dict[str, Any], int]]
LogicalReaders = Mapping[str, Callable[..., Any]]  # fastavro's: of `long-timestamp-millis` and the like

# Lines that read a number into `n`. A count, of bytes, items or branches, is never negative.
_NUMBER = """\
n = data[at]
if n & 128:
    n, at = number(data, at)
else:
    n = n >> 1 ^ -(n & 1)
    at += 1""".splitlines()
_COUNT = """\
n = data[at]
if n & 129:
    n, at = count(data, at)
else:
    n >>= 1
    at += 1""".splitlines()


def decoder(event: Mapping[str, Any], logical_readers: LogicalReaders) -> Decoder:
    """The function for an event's schema, checked (definitions.py) and as fastavro has parsed it."""
    source = _Source(event["__named_schemas"], logical_readers)
    name = source.function(event)
    exec("\n".join(source.lines), source.names)
    made: Decoder = source.names[name]
    return made


class _Source:
    """The source of functions: one for each record, array and map. `names`: what else they see."""

    def __init__(self, named: Mapping[str, Mapping[str, Any]], logical_readers: LogicalReaders) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "number": _number,
            "count": _count,
            "float_at": Struct("<f").unpack_from,
            "double_at": Struct("<d").unpack_from,
        }
        self._named = named
        self._logical_readers = logical_readers
        self._records: dict[str, str] = {}  # their functions: a record used twice has one
        self._functions = 0

    def function(self, type: Mapping[str, Any]) -> str:
        """Write the function of a record, array or map; returns its name."""
        record = type["type"] == "record"
        if record and type["name"] in self._records:
            return self._records[type["name"]]
        lines, made = self._made(type)
        self._functions += 1
        name = f"read{self._functions}"
        self.lines += [f"def {name}(data, at):", *_inside(lines), f"    return {made}, at"]
        if record:
            self._records[type["name"]] = name
        return name

    def _made(self, type: Mapping[str, Any]) -> tuple[list[str], str]:
        """Lines that read its parts, and the expression that is the whole."""
        if type["type"] == "array":
            item = [*self._read(type["items"], "item"), "items.append(item)"]
            return ["items = []", *_many(item)], "items"
        if type["type"] == "map":
            entry = [*self._read("string", "key"), *self._read(type["values"], "entries[key]")]
            return ["entries = {}", *_many(entry)], "entries"
        lines, entries = [], []
        for n, field in enumerate(type["fields"]):
            lines += self._read(field["type"], f"field{n}")
            entries.append(f"{field['name']!r}: field{n}")
        return lines, "{" + ", ".join(entries) + "}"

    def _read(self, type: Any, variable: str) -> list[str]:
        """Lines that read a value of this type at `at` into a variable, and move `at` to its end."""
        if isinstance(type, list):
            return self._union(type, variable)
        if isinstance(type, str):
            return self._read({"type": type} if type in PRIMITIVES else self._named[type], variable)
        lines = self._plain(type, variable)
        logical = self._logical_readers.get(f"{type['type']}-{type.get('logicalType')}")
        if logical is not None:
            lines.append(f"{variable} = {self._constant(logical)}({variable}, {self._constant(type)}, None)")
        return lines

    def _plain(self, type: Mapping[str, Any], variable: str) -> list[str]:
        match type["type"]:
            case "null":
                return [f"{variable} = None"]
            case "boolean":
                return [f"{variable} = data[at] != 0", "at += 1"]
            case "int" | "long":
                return [*_NUMBER, f"{variable} = n"]
            case "float":
                return [f"({variable},) = float_at(data, at)", "at += 4"]
            case "double":
                return [f"({variable},) = double_at(data, at)", "at += 8"]
            case "bytes":
                return [*_COUNT, f"{variable} = data[at : at + n]", "at += n"]
            case "string":
                return [*_COUNT, f"{variable} = data[at : at + n].decode()", "at += n"]
            case "fixed":  # its last byte is looked at: an array of them must not go on behind the end
                size = type["size"]
                return [f"{variable} = data[at : at + {size}]", f"at += {size}", "data[at - 1]"]
            case "enum":
                return [*_COUNT, f"{variable} = {self._constant(tuple(type['symbols']))}[n]"]
            case _:
                return [f"{variable}, at = {self.function(type)}(data, at)"]

    def _union(self, branches: list[Any], variable: str) -> list[str]:
        lines = list(_COUNT)
        for n, branch in enumerate(branches):
            lines += [f"{'elif' if n else 'if'} n == {n}:", *_inside(self._read(branch, variable))]
        return [*lines, "else:", "    raise IndexError"]

    def _constant(self, value: Any) -> str:
        name = f"constant{len(self.names)}"
        self.names[name] = value
        return name


def _many(item: list[str]) -> list[str]:
    """Lines that read items, block by block, until a count of none."""
    return [*_COUNT, "while n:", "    for _ in range(n):", *_inside(_inside(item)), *_inside(_COUNT)]


def _inside(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to 64 bits, and where it ends."""
    n = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        n |= (byte & 127) << shift
        if byte < 128 and n < 2**64:
            return n >> 1 ^ -(n & 1), at
    raise OverflowError


def _count(data: bytes, at: int) -> tuple[int, int]:
    """The same, where it must not be negative."""
    n, at = _number(data, at)
    if n < 0:
        raise ValueError
    return n, at
