"""The options that choose dead letters, and choose them again in the command that is printed to be typed next."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from stream.keys import HEX, shown_key, typed_key
from stream.letters import STAGES, Which
from stream.views import rfc3339

_AGO = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|m|h)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class LetterId(click.IntRange):
    """The number of a dead letter."""

    def __init__(self) -> None:
        super().__init__(1, 2**63 - 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(
                f"expected a letter's number, as `dlq list --all` shows it; got {value!r:.80}", param, ctx
            )


def moment(_ctx: click.Context, _option: click.Parameter, text: str | None) -> datetime | None:
    """The value of an option: a time in ISO 8601, UTC where it names no zone; or how long ago: `90m`, `2h`, `7d`."""
    if text is None:
        return None
    try:
        if ago := _AGO.fullmatch(text):
            return datetime.now(UTC) - timedelta(seconds=float(ago[1]) * _SECONDS[ago[2]])
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        expected = "expected a time such as 2026-08-02T14:00 (UTC), or how long ago, such as 2h"
        raise click.BadParameter(f"{expected}; got {text!r}") from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def time(_ctx: click.Context, _option: click.Parameter, text: str | None) -> datetime | None:
    """The value of an option: a time in ISO 8601, UTC where it names no zone."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"expected a time such as 2026-08-02T14:00 (UTC), got {text!r}") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def span(_ctx: click.Context, _option: click.Parameter, text: str | None) -> timedelta | None:
    """The value of an option: how long, `90s`, `30m`, `2h`, `7d`; ten years at most."""
    if text is None:
        return None
    found = _AGO.fullmatch(text)
    seconds = 0.0 if found is None else float(found[1]) * _SECONDS[found[2]]
    if not 0 < seconds <= 3650 * 86400:
        raise click.BadParameter(f"expected a span such as 30m, 2h or 1d, got {text!r}")
    return timedelta(seconds=seconds)


def span_words(span: timedelta) -> str:
    """The text of a span, as `span` takes it."""
    seconds = span.total_seconds()
    unit = next(unit for unit in "dhms" if not seconds % _SECONDS[unit] or unit == "s")
    return f"{seconds / _SECONDS[unit]:.12g}{unit}"


def per_second(_ctx: click.Context, _option: click.Parameter, text: str) -> float:
    """The value of an option: how many a second, from `50/s` or `600/m`."""
    found = _RATE.fullmatch(text)
    if found is None or float(found[1]) == 0:
        raise click.BadParameter(f"expected a rate such as 50/s or 600/m, got {text!r}")
    return float(found[1]) / _SECONDS[found[2]]


_OPTIONS = (
    click.option("--group", metavar="NAME", help="Only letters of this consumer group."),
    click.option("--error-class", metavar="NAME", help="Only of this error, with or without its module."),
    click.option("--stage", type=click.Choice(STAGES), help="Only what failed there."),
    click.option(
        "--since",
        callback=moment,
        metavar="TIME",
        help="Only what failed last since then: a time, UTC where no zone is given, or 2h (ago).",
    ),
    click.option(
        "--until",
        callback=moment,
        metavar="TIME",
        help="Only what failed last before then: a time, UTC where no zone is given, or 2h (ago).",
    ),
    click.option("--key", metavar="KEY", help=f"Only of this key: text, or {HEX} and hex."),
    click.option("--fingerprint", metavar="TEXT", help="Only what failed alike, as `dlq list` shows it."),
)


def letter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the filters; the command gets `which`, of the open letters."""

    @functools.wraps(command)
    def with_which(*args: Any, key: str | None, **kwargs: Any) -> Any:
        names = ("group", "error_class", "stage", "since", "until", "fingerprint")
        which = Which(**{name: kwargs.pop(name) for name in names})
        return command(*args, which=replace(which, key=None if key is None else typed_key(key)), **kwargs)

    for option in reversed(_OPTIONS):
        with_which = option(with_which)
    return with_which


def words(which: Which) -> list[str]:
    """The words of a command line that choose the same letters again."""
    options = {
        "--group": which.group,
        "--error-class": which.error_class,
        "--stage": which.stage,
        "--since": None if which.since is None else rfc3339(which.since),
        "--until": None if which.until is None else rfc3339(which.until),
        "--key": shown_key(which.key),
        "--fingerprint": which.fingerprint,
        "--up-to": None if which.up_to is None else str(which.up_to),
    }
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    return [*(str(id) for id in which.ids), *given]
