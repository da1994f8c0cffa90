"""ConsumerGroup: handlers with a progress of their own, as their author declares them."""

from __future__ import annotations

import difflib
import inspect
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Never, TypeVar, get_args

from stream.errors import GroupError
from stream.project import Project

F = TypeVar("F", bound=Callable[..., object])

OnDead = Literal["release", "hold"]
OnReapply = Literal["run", "skip"]

# What Kafka takes as a group id, a file system as a name and a topic as a part of its own (`<group>.retry`).
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_OPTIONS = (
    "start",
    "batch",
    "concurrency",
    "attempts",
    "give_up_after",
    "on_dead",
    "timeout",
    "rate",
    "catch_up_rate",
    "on_reapply",
)
_REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class Handler:
    """One handler function of a group; with `batch` it takes a list of events."""

    function: Callable[..., object]
    batch: bool

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))


class ConsumerGroup:
    """A set of handlers with its own progress through its topics.

        group = ConsumerGroup("invoicing", topics=["orders"], start="beginning", batch=500)

        @group.on("OrderPlaced")
        def issue_invoice(event: Event, ctx: Context) -> None: ...

    `start`: where the group begins the first time: "beginning", "end", or a time (datetime or ISO 8601). It has no
    default, or a new mail group would write to every customer of the past by accident.
    `batch`: events in one transaction. More than 1 only for handlers that touch nothing but `ctx.db`: a
    neighbour's failure runs them again.
    `concurrency`: handlers side by side in one process, each with a key of its own, where `batch` is 1.
    `timeout`: seconds after which a statement of a handler is cancelled, and which `ctx.deadline` is ahead of its
    start. Python code that goes on for longer is named in the log; past twice as long its process ends (exit code 7),
    to be started again. `ctx.heartbeat()` moves the deadline of work that is just long.
    `attempts`: how often an event is tried that raises; `give_up_after`: how long one is whose provider is not there
    (TransientError, OSError), however often. `on_dead`: whether its key then goes on ("release") or waits for a
    person ("hold").
    `rate`: at most so many events start, "10/s" or "600/m", in all processes of the group together.
    `catch_up_rate`: the same of history only, which is what was in the topics when the group first started: a new group
    leaves broker, database and providers to those that are there. What comes later is not held back by it.
    `on_reapply`: whether history run again on purpose runs these handlers for what they applied before.

    Raises GroupError naming what was expected and what was found.
    """

    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        *,
        start: Literal["beginning", "end"] | str | datetime = _REQUIRED,
        batch: int = 1,
        concurrency: int = 8,
        attempts: int = 5,
        give_up_after: str | timedelta = "24h",
        on_dead: OnDead = "release",
        timeout: float = 60.0,
        rate: str | None = None,
        catch_up_rate: str | None = None,
        on_reapply: OnReapply = "run",
        **unknown: Never,
    ) -> None:
        where = f"group {name!r}"
        for option in unknown:
            raise GroupError(f"{where}: unknown option {option!r}{suggestion(option, _OPTIONS)}")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise GroupError(f"{where}: expected a name of letters, digits, '.', '_' and '-', at most 100")
        if start is _REQUIRED:
            raise GroupError(f'{where}: start is missing; expected "beginning", "end" or a time')
        self.name = name
        self.topics = _topics(where, topics)
        self.start = _start(where, start)
        self.batch = _whole(where, "batch", batch, 1, 10_000)
        self.concurrency = _whole(where, "concurrency", concurrency, 1, 256)
        self.attempts = _whole(where, "attempts", attempts, 1, 1_000_000)
        self.give_up_after = _duration(where, "give_up_after", give_up_after)
        self.on_dead = _choice(where, "on_dead", on_dead, get_args(OnDead))
        self.timeout = _positive(where, "timeout", timeout)
        self.rate = _rate(where, "rate", rate)
        self.catch_up_rate = _rate(where, "catch_up_rate", catch_up_rate)
        self.on_reapply = _choice(where, "on_reapply", on_reapply, get_args(OnReapply))
        self.handlers: dict[str, Handler] = {}
        self.path: Path | None = None  # the file that declares it, once discovered

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.name!r}, topics={list(self.topics)})"

    def on(self, *types: str, batch: bool = False) -> Callable[[F], F]:
        """Register a handler of these event types: `handler(event, ctx)`, or `handler(events, ctx)` with `batch`.

        May be stacked. A list of `batch` never holds an event that an earlier event of its key, handled elsewhere,
        has not passed; if the handler raises, the list is tried again in halves.
        """
        if not types or not all(isinstance(type, str) and type for type in types):
            raise GroupError(f"group {self.name!r}: @group.on: expected event types as text, got {types!r}")

        def register(function: F) -> F:
            handler = Handler(function, batch)
            self._check_signature(handler)
            for type in types:
                if type in self.handlers:
                    raise GroupError(
                        f"group {self.name!r}: {type} has two handlers: {self.handlers[type].name}, {handler.name}"
                    )
                self.handlers[type] = handler
            return function

        return register

    def check(self, project: Project) -> None:
        """Raise GroupError where a topic or an event type of the group is not in the project's catalogs."""
        where = f"group {self.name!r}"
        known = project.topics.topics
        for topic in self.topics:
            if topic not in known:
                raise GroupError(f"{where}: unknown topic {topic!r}{suggestion(topic, known)}")
        carried = {type: topic for topic in self.topics for type in known[topic].events}
        for type, handler in self.handlers.items():
            if type in carried:
                continue
            elsewhere = {type: topic.name for topic in known.values() for type in topic.events}
            if type in elsewhere:
                raise GroupError(
                    f"{where}: {handler.name} handles {type}, which is on topic {elsewhere[type]!r};"
                    f" the group reads {', '.join(self.topics)}"
                )
            raise GroupError(
                f"{where}: unknown event type {type!r}{suggestion(type, elsewhere)}",
                hint=None if nearest(type, elsewhere) else f"stream schema new {shlex.quote(type)}",
            )
        if not self.handlers:
            raise GroupError(f"{where}: it has no handler; expected @group.on(...) before a function")

    def _check_signature(self, handler: Handler) -> None:
        expected = "(events, ctx)" if handler.batch else "(event, ctx)"
        try:
            signature = inspect.signature(handler.function)
            signature.bind(None, None)
        except (TypeError, ValueError) as error:
            raise GroupError(
                f"group {self.name!r}: handler {handler.name}: expected {expected}: {error}"
            ) from None
        if inspect.iscoroutinefunction(handler.function):
            raise GroupError(
                f"group {self.name!r}: handler {handler.name}: expected a plain function, got async def"
            )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like it, if one is."""
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1)), None)


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean ...?`, or the names there are."""
    near = nearest(name, known)
    if near is not None:
        return f"; did you mean {near!r}?"
    names = sorted(known)
    return f"; known are {', '.join(names)}" if names else "; there are none"


def _topics(where: str, topics: object) -> tuple[str, ...]:
    if isinstance(topics, str) or not isinstance(topics, Sequence) or not topics:
        raise GroupError(f"{where}: topics: expected a list of topic names, got {topics!r}")
    if len(set(topics)) != len(topics):
        raise GroupError(f"{where}: topics: {', '.join(map(str, topics))} names one twice")
    return tuple(topics)


def _start(where: str, start: object) -> Literal["beginning", "end"] | datetime:
    if start == "beginning" or start == "end":
        return start
    time = start
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            raise GroupError(
                f'{where}: start: expected "beginning", "end" or a time, got {start!r}'
            ) from None
    if not isinstance(time, datetime):
        raise GroupError(f'{where}: start: expected "beginning", "end" or a time, got {start!r}')
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _whole(where: str, option: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise GroupError(f"{where}: {option}: expected a whole number from {low} to {high}, got {value!r}")
    return value


def _positive(where: str, option: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 86400:
        raise GroupError(f"{where}: {option}: expected seconds above 0 and below a day, got {value!r}")
    return float(value)


def _choice(where: str, option: str, value: str, choices: tuple[str, ...]) -> Any:
    if value not in choices:
        raise GroupError(f"{where}: {option}: expected one of {', '.join(choices)}, got {value!r}")
    return value


def _duration(where: str, option: str, value: object) -> timedelta:
    if isinstance(value, str) and (found := _DURATION.fullmatch(value.strip())):
        value = timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise GroupError(f"{where}: {option}: expected a duration such as '24h' or '30m', got {value!r}")
    return value


def _rate(where: str, option: str, value: object) -> float | None:
    """Events a second."""
    if value is None:
        return None
    found = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or float(found[1]) == 0:
        raise GroupError(f"{where}: {option}: expected a rate such as '10/s' or '600/m', got {value!r}")
    return float(found[1]) / _SECONDS[found[2]]
