"""Every error this package raises.

    StreamError                  exit code 1
    ├── UsageError               2   a name, option or file the user gave is wrong
    │   ├── NoProject                the folder is none, or holds no schemas/
    │   ├── SchemaError              a schema file or topics.toml is wrong (file, path inside it)
    │   ├── InvalidEvent             an event does not fit its schema (field, expected, got)
    │   │   └── UnknownEventType
    │   └── GroupError               a consumer group is declared wrongly, or unknown
    ├── Unreachable              3   broker or database does not answer
    ├── Refused                  4   a guard says no; nothing was changed
    ├── CheckFailed              5   a check says no (incompatible schema, pending migration)
    ├── PartlyDone               6   some of it is done, the rest is named
    ├── OutOfMemory              7   a handler met MemoryError: the process must be started again
    ├── ProjectImportError       1   a module in consumers/ does not import
    └── HandlerError                 raised by handlers to say what kind of failure it is
        ├── PermanentError           trying again cannot help
        ├── TransientError           trying again later can help
        └── StopGroup                stop the whole group, offset kept

A user's mistake says what was expected, what was found, and in `hint` the command to type next.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar


class StreamError(Exception):
    """Base of all errors of this package; `hint` is the command to type next, if there is one."""

    exit_code: ClassVar[int] = 1
    # A subclass of an application may not call this __init__: its message must still be printable.
    message: str = ""
    hint: str | None = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        message = self.message or Exception.__str__(self)
        return message if self.hint is None else f"{message}\n-> {self.hint}"


class UsageError(StreamError):
    """Raised when a name, an option or a file that the user gave is wrong."""

    exit_code = 2


class NoProject(UsageError):
    """Raised when the folder that is given, or that a command was typed in, is no project."""

    def __init__(self, folder: Path) -> None:
        why = "it has no folder schemas/" if folder.is_dir() else "there is no such folder"
        super().__init__(f"{folder} is no project: {why}", hint="cd PROJECT, or --project PROJECT")


class SchemaError(UsageError):
    """Raised when a schema file or topics.toml is wrong; `path` names the file."""

    def __init__(self, path: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {message}", hint=hint)
        self.path = path


class InvalidEvent(UsageError):
    """Raised when an event does not fit: `field` is its path, with what was expected and got.

    Raised before anything is sent to the database, so the caller's transaction stays usable.
    """

    def __init__(self, field: str, expected: str, got: str, *, type: str = "") -> None:
        where = f"{type}.{field}" if type else field
        super().__init__(f"{where}: expected {expected}, got {got}")
        self.field, self.expected, self.got, self.type = field, expected, got, type


class UnknownEventType(InvalidEvent):
    """Raised when no schema has the name of this event type."""


class GroupError(UsageError):
    """Raised when a consumer group is declared wrongly, or there is none of that name."""


class Unreachable(StreamError):
    """Raised when a broker or database does not answer; the message has its address, never a password."""

    exit_code = 3


class Refused(StreamError):
    """Raised when a guard says no. Nothing was changed."""

    exit_code = 4


class CheckFailed(StreamError):
    """Raised when a check says no."""

    exit_code = 5


class PartlyDone(StreamError):
    """Raised when some of the work is done and the rest, named in the message, is not."""

    exit_code = 6


class OutOfMemory(StreamError):
    """Raised when a handler met MemoryError: the process must be started again."""

    exit_code = 7


class ProjectImportError(StreamError):
    """Raised when a module in consumers/ does not import; the message ends with its traceback."""


class HandlerError(StreamError):
    """Base of what handlers raise to say what kind of failure it is."""


class PermanentError(HandlerError):
    """Raised by a handler when trying again cannot help."""


class TransientError(HandlerError):
    """Raised by a handler when trying again later can help; `retry_after` is in seconds."""

    retry_after: float | None = None

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StopGroup(HandlerError):
    """Raised by a handler to stop its whole group with the offset kept."""


def text_of(error: BaseException) -> str:
    """The error's text, whatever its class makes of it; its class's name where it has none."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001  # somebody else's __str__
        return type(error).__name__
