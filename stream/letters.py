"""Dead letters: what groups gave up, as people look at it. Reading changes nothing; replays.py acts on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from stream.database import Connection, query
from stream.errors import StreamError
from stream.keys import shown_key
from stream.schemas import AvroCodec, to_json
from stream.views import as_json

STATUSES = ("open", "replayed", "discarded", "superseded")
STAGES = ("decode", "handler", "commit")


@dataclass(frozen=True, slots=True)
class Which:
    """Letters that fit all that is given. `since` and `until` are about the last failure, `until` is not in it.

    `error_class`: with or without its module. `up_to`: no letter younger than this id. `status`: None is any.
    """

    group: str | None = None
    error_class: str | None = None
    stage: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    key: bytes | None = None
    fingerprint: str | None = None
    ids: Sequence[int] = ()
    up_to: int | None = None
    status: str | None = "open"

    @property
    def says_something(self) -> bool:
        """Whether it chooses among the open letters."""
        given = (getattr(self, f.name) for f in fields(self) if f.name not in ("status", "up_to"))
        return any(value not in (None, ()) for value in given)

    @property
    def parameters(self) -> dict[str, Any]:
        """As the queries name them."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"ids": list(self.ids) or None}


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Open letters of one group that failed alike. `sample` is the message of `newest`, a letter's id."""

    fingerprint: str
    group: str
    kind: str
    stage: str
    error_class: str
    count: int
    first_at: datetime
    last_at: datetime
    sample: str
    newest: int


@dataclass(frozen=True, slots=True)
class Letter:
    """An event that its group gave up, and why."""

    id: int
    group: str
    event_id: UUID
    type: str | None
    key: bytes | None
    topic: str
    partition: int
    offset: int
    kind: str
    stage: str
    error_class: str
    error_message: str
    attempts: int
    first_failed_at: datetime
    last_failed_at: datetime
    worker: str
    trace_id: str | None
    status: str

    @property
    def position(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True)
class LetterDetails(Letter):
    """A letter with its record and its tries, newest first. `held`: its key waits for it; `followers` that wait
    behind it. `on_dead`: what its group did with the key. `replays` there were before this letter. `newer`: the letter
    of the event's last death, where it was replayed and died again."""

    epoch: int
    value: bytes | None
    header_names: Sequence[str]
    header_values: Sequence[bytes | None]
    timestamp: datetime
    error_stack: str | None
    errors: Sequence[Mapping[str, Any]]
    fingerprint: str
    on_dead: str
    replays: int
    died_at: datetime
    resolved_at: datetime | None
    resolved_by: str | None
    resolved_reason: str | None
    held: bool
    followers: int
    newer: int | None

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(zip(self.header_names, self.header_values, strict=True))


@dataclass(frozen=True, slots=True)
class Chosen:
    """A letter that is to be acted on. `applied`: its effect is there already."""

    id: int
    group: str
    fingerprint: str
    kind: str
    error_class: str
    lane: int
    on_dead: str
    replays: int
    applied: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """The open letters that were chosen, in the order they are acted on: those of a key together, and in its order.

    `up_to`: the youngest letter there was; what dies later is not among them.
    """

    letters: Sequence[Chosen]
    up_to: int
    worn_out: Sequence[Chosen] = ()  # replayed too often: left out

    def first(self, most: int | None) -> Choice:
        """At most so many of them."""
        return replace(self, letters=self.letters[:most])

    def keys(self) -> int:
        """How many keys they are of."""
        return len({(letter.group, letter.lane) for letter in self.letters})


def groups(connection: Connection, which: Which) -> list[LetterGroup]:
    """The open letters by group and fingerprint, what failed last first."""
    with connection.cursor(row_factory=class_row(LetterGroup)) as cursor:
        return cursor.execute(query("letter_groups"), which.parameters).fetchall()


def each(connection: Connection, which: Which) -> list[Letter]:
    """The letters, the oldest first."""
    with connection.cursor(row_factory=class_row(Letter)) as cursor:
        return cursor.execute(query("letters"), which.parameters).fetchall()


def one(connection: Connection, id: int) -> LetterDetails:
    """The letter with this id. Raises StreamError where there is none."""
    with connection.cursor(row_factory=class_row(LetterDetails)) as cursor:
        found = cursor.execute(query("letter_details"), Which(ids=[id], status=None).parameters).fetchone()
    if found is None:
        raise StreamError(f"there is no dead letter {id}", hint="stream dlq list --all")
    return found


def details(connection: Connection, which: Which) -> Iterator[LetterDetails]:
    """The letters with their records, the oldest first. They are read as they are taken, however many."""
    with (
        connection.transaction(),
        connection.cursor("letters", row_factory=class_row(LetterDetails)) as cursor,
    ):
        cursor.itersize = 100
        yield from cursor.execute(query("letter_details"), which.parameters)


def choose(connection: Connection, which: Which, *, most_replays: int | None = None) -> Choice:
    """What an act on these letters acts on; letters that were replayed `most_replays` times are left out."""
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read, read only")
        [(last,)] = connection.execute(query("last_letter"))
        up_to = last if which.up_to is None else min(last, which.up_to)
        rows = connection.execute(query("letters_to_act_on"), which.parameters | {"up_to": up_to})
        found = [Chosen(*row) for row in rows]
    worn_out = [one for one in found if most_replays is not None and one.replays >= most_replays]
    gone = {one.id for one in worn_out}
    return Choice([one for one in found if one.id not in gone], up_to, worn_out)


def decoded(found: LetterDetails, codec: AvroCodec) -> Any:
    """The event's data; None where its bytes are none of the project's events."""
    if found.value is None:
        return None
    try:
        return to_json(codec.decode(found.value)[1])
    except StreamError:
        return None


def contract_form(found: Letter | LetterGroup) -> dict[str, Any]:
    """The public JSON of `dlq list`."""
    of = LetterGroup if isinstance(found, LetterGroup) else Letter
    return {f.name: as_json(getattr(found, f.name)) for f in fields(of) if f.name != "newest"}


def details_form(found: LetterDetails, codec: AvroCodec) -> dict[str, Any]:
    """The JSON of `dlq show` and of each line of `dlq export`: text as it is, bytes that are none as `\\x` and hex."""
    rest = {
        f.name: as_json(getattr(found, f.name))
        for f in fields(LetterDetails)
        if f.name not in ("value", "header_names", "header_values")
    }
    return rest | {
        "headers": [[name, shown_key(value)] for name, value in found.headers],
        "data": decoded(found, codec),
        "value": None if found.value is None else "\\x" + found.value.hex(),
    }
