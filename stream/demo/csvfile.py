"""A CSV file, read strictly: UTF-8 with or without a byte-order mark, LF or CRLF, columns in any order.

Anything else is one UsageError naming file, line, column, what was expected and what was found.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from stream.errors import UsageError


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row begins, for error messages."""

    path: Path
    line: int

    def wrong(self, column: str, expected: str, found: str) -> NoReturn:
        raise UsageError(f"{self.path}:{self.line}: column {column}: expected {expected}, found {found}")

    def wrong_value(self, column: str, expected: str, value: str) -> NoReturn:
        self.wrong(column, expected, shown(value))


def records(path: Path, columns: Sequence[str]) -> Iterator[tuple[Place, dict[str, str]]]:
    """Each row with the line it begins on and its values by column, stripped; raises UsageError."""
    text = _text(path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    begin = 1
    while True:
        place = Place(path, begin)
        try:
            fields = next(reader, None)
        except csv.Error as error:
            _bad_quotes(place, header, text, reader.line_num, error)
        if header is None:
            header = _header(place, fields or [], columns)
        elif fields is None:
            return
        elif fields:  # else an empty line
            yield place, _values(place, header, fields)
        begin = reader.line_num + 1


def _header(place: Place, fields: list[str], columns: Sequence[str]) -> list[str]:
    header = [field.strip() for field in fields]
    for column in columns:
        if header.count(column) != 1:
            place.wrong_value(column, "this column once", ",".join(header))
    for column in header:
        if column not in columns:
            place.wrong(shown(column), f"only {','.join(columns)}", "a column more")
    return header


def _values(place: Place, header: list[str], fields: list[str]) -> dict[str, str]:
    if len(fields) != len(header):
        column = header[min(len(fields), len(header) - 1)]
        place.wrong(column, f"{len(header)} values in the row", f"{len(fields)} values")
    for column, field in zip(header, fields, strict=True):
        if "\0" in field:
            place.wrong_value(column, "text without null characters", field)
    return {column: field.strip() for column, field in zip(header, fields, strict=True)}


def _text(path: Path) -> str:
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise UsageError(f"{path}: expected a readable file, found {error.strerror}") from None
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode()
        place, column = _position(path, before)
        place.wrong(column, "UTF-8 text", f"byte 0x{content[error.start]:02x}")
    lone = re.search(r"\r(?!\n)", text)
    if lone:
        place, column = _position(path, text[: lone.start()])
        place.wrong(column, "lines that end in LF or CRLF", "CR alone")
    return text


def _position(path: Path, before: str) -> tuple[Place, str]:
    """Line and column at which a text breaks off, whatever is in it."""
    lines = before.split("\n")
    header = next(csv.reader(lines[:1]), []) if len(lines) > 1 else []
    return Place(path, len(lines)), _column(header, lines[-1])


def _column(header: list[str] | None, before: str) -> str:
    number = max(len(next(csv.reader([before]), [])), 1)
    return header[number - 1].strip() if header and number <= len(header) else str(number)


def _bad_quotes(place: Place, header: list[str] | None, text: str, last: int, error: csv.Error) -> NoReturn:
    """A quote that is not closed, or closed within a value, or a huge one: say where parsing breaks off."""
    record = "".join(itertools.islice(io.StringIO(text, newline=""), place.line - 1, last))[:10_000]
    broken = record
    for end in range(1, len(record)):
        try:
            next(csv.reader([record[:end]], strict=True))
        except csv.Error as reason:
            if "unexpected end" not in str(reason):
                broken = record[:end]
                break
    place.wrong(_column(header, broken), f"a well-formed value ({error})", shown(broken))


def shown(text: str) -> str:
    """What was found, on one line, with nothing a terminal acts on."""
    if not text:
        return "nothing"
    return repr(text) if len(text) <= 60 else repr(text[:60]) + "..."
