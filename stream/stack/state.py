"""What one stack remembers between commands: ports, password, PostgreSQL's home, the processes it started."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from stream.errors import StreamError

FILE = "state.json"
LOCK = "lock"
KAFKA_FOLDER = "kafka"
POSTGRES_FOLDER = "postgres"


@dataclass
class State:
    """The content of `state.json`; ports and password stay the same for the life of the folder."""

    kafka_port: int | None = None
    controller_port: int | None = None
    postgres_port: int | None = None
    password: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    # The folder of root's database, which is not in this one.
    postgres_home: str | None = None
    kafka_pid: int | None = None
    postgres_pid: int | None = None

    def save(self, data: Path) -> None:
        """Replace the file in one step, readable by its owner alone: it holds the password."""
        temporary = data / f"{FILE}.new"
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(data / FILE)


def load(data: Path) -> State | None:
    """The state of the stack in `data`, None where there is none; raises StreamError where it is no use."""
    path = data / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        known = {one.name for one in fields(State)}
        return State(**{name: value for name, value in content.items() if name in known})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise StreamError(f"{path} belongs to another user; run this as that user") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise StreamError(f"{path} is damaged ({error})", hint=removal(data)) from error


def load_or_new(data: Path) -> State:
    """As `load`, or a new state; refuses a folder that has data but has lost its state, rather than guess."""
    state = load(data)
    if state is not None:
        return state
    for name in (KAFKA_FOLDER, POSTGRES_FOLDER):
        if (data / name).exists():
            raise StreamError(f"{data / name} is there but {FILE} is not", hint=removal(data))
    return State()


def removal(data: Path) -> str:
    """The command that starts afresh."""
    return f"rm -r {shlex.quote(str(data))}   (this deletes its data)"


def make_folder(data: Path) -> None:
    """Make the stack's folder, for its owner alone; refuse one in which somebody else could swap files."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = data.stat()
    if found.st_uid != os.geteuid():
        raise StreamError(f"{data} belongs to another user; run this as that user")
    if found.st_mode & stat.S_IWOTH:
        raise StreamError(f"everybody can write to {data}", hint=f"chmod o-w {data}")


@contextmanager
def locked(data: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Hold the folder's lock: one `up` or `down` at a time. The kernel frees it when its holder dies."""
    descriptor = os.open(data / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another command that works on {data}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink == 0:
            raise StreamError(f"{data} was deleted while this command waited for it")
        yield
    finally:
        os.close(descriptor)
