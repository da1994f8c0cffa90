"""Misfit: a value that does not fit its type, and the path to it, in words safe to print and store. Pure."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal
from uuid import UUID

CLAMP = 60  # characters of a value that a message shows


class Misfit(Exception):
    """Raised when a value does not fit; each level on the way out puts its own step before `path`."""

    def __init__(self, expected: str, got: object) -> None:
        super().__init__(expected)
        self.expected = expected
        self.got = got if isinstance(got, Shown) else show(got)
        self.path: list[str | int] = []

    @property
    def field(self) -> str:
        """The path as messages write it: `lines[2].quantity`; `data` for the whole value."""
        return path_text(self.path) or "data"


class Shown(str):
    """Words of our own about a value, not to be quoted again."""

    __slots__ = ()


def path_text(path: list[str | int]) -> str:
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier() and step.isascii() and len(step) <= CLAMP:
            text += f".{step}" if text else step
        else:
            text += f"[{_quoted(step)}]"
    return text


def show(value: object) -> Shown:
    """A value's kind and at most 60 characters of it; repr() escapes what cannot be printed or stored."""
    if value is None:
        return Shown("null")
    if isinstance(value, bool):
        return Shown("true" if value else "false")
    if isinstance(value, (dict, list, tuple, set)):
        return Shown(f"a {_kind(value)} of {len(value)}")
    if isinstance(value, int) and value.bit_length() > 4 * CLAMP:
        return Shown(f"an integer of {value.bit_length()} bits")  # over 4,300 digits str() refuses
    if isinstance(value, (str, bytes)):
        return Shown(f"{_quoted(value)} ({_kind(value)})")
    if isinstance(value, (int, float, Decimal, UUID, date, time)):
        return Shown(f"{_clamped(str(value))} ({_kind(value)})")
    return Shown(f"a value of type {_kind(value)}")


def _quoted(value: str | bytes) -> str:
    return _clamped(repr(value[:CLAMP])) if len(value) <= CLAMP else _clamped(repr(value[:CLAMP]), cut=True)


def _clamped(text: str, cut: bool = False) -> str:
    return f"{text[: CLAMP - 3]}..." if cut or len(text) > CLAMP else text


def _kind(value: object) -> str:
    return type(value).__name__[:CLAMP]
