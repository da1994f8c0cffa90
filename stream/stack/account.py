"""Whom PostgreSQL runs as, and where: it refuses root, and another user cannot reach what is root's.

Called by root, the binaries are copied to, and the data kept in, root's part of the system's state folder,
where every folder above the data is root's and only the data folder itself belongs to PostgreSQL's user. The
rights of folders that are not ours are never widened.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stream.errors import StreamError
from stream.stack import wheels
from stream.stack.process import Owner
from stream.stack.state import POSTGRES_FOLDER

SYSTEM_STATE = Path("/var/lib/order-event-stream")
KNOWN_USERS = ("postgres", "_postgres")
MADE_USER = "stream-postgres"
DATA = "data"


@dataclass(frozen=True)
class Account:
    """`install` has bin, lib and share; `owner` is None for the caller itself."""

    owner: Owner | None
    install: Path


def home_of(data: Path) -> Path:
    """Where PostgreSQL of the stack in `data` lives: inside it, or for root in a folder named after its path.

    The same path gives the same folder: what a stack leaves whose `.stream` was removed is found again.
    """
    if os.geteuid() != 0:
        return data / POSTGRES_FOLDER
    return SYSTEM_STATE / f"{data.parent.name[:40]}-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"


def account(home: Path, progress: Callable[[str], None]) -> Account:
    """Make ready what PostgreSQL needs to run in `home`; StreamError where root has nobody to run it as."""
    install = wheels.postgres_install()
    if os.geteuid() != 0:
        home.mkdir(mode=0o700, exist_ok=True)
        return Account(None, install)
    owner = _owner(home, progress)
    _root_folder(SYSTEM_STATE)
    _root_folder(home)
    return Account(owner, _shared_copy(install))


def _owner(home: Path, progress: Callable[[str], None]) -> Owner:
    """Whose data it is; for a new one PostgreSQL's user of this system, made if there is none."""
    if (home / DATA).exists():
        entry = pwd.getpwuid((home / DATA).stat().st_uid)
        return Owner(entry.pw_name, entry.pw_uid, entry.pw_gid)
    for name in (*KNOWN_USERS, MADE_USER):
        if (found := _lookup(name)) is not None:
            return found
    progress(f"making the system user {MADE_USER}: PostgreSQL does not run as root")
    try:
        subprocess.run(
            ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", MADE_USER],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise StreamError(
            f"PostgreSQL does not run as root, and the system user {MADE_USER} could not be made ({error})",
            hint="run this as an ordinary user, or make a user called postgres",
        ) from error
    made = _lookup(MADE_USER)
    assert made is not None
    return made


def _lookup(name: str) -> Owner | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return None if entry.pw_uid == 0 else Owner(name, entry.pw_uid, entry.pw_gid)


def _root_folder(path: Path) -> None:
    """Make a folder of root's that others may pass through; refuse one in which they could swap things."""
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
        raise StreamError(f"{path} must be a folder of root's that nobody else can write to")
    path.chmod(0o755)  # whatever the umask made of it


def _shared_copy(install: Path) -> Path:
    """PostgreSQL's programs where another user can run them: copied once a version, root's, in one step.

    They find their libraries beside their package, so that much of the layout is kept.
    """
    package = install.parent
    kept = SYSTEM_STATE / f"postgresql-{wheels.postgres_version()}"
    if not kept.exists():
        with tempfile.TemporaryDirectory(prefix="copy-", dir=SYSTEM_STATE) as scratch:
            copy = Path(scratch) / "copy"
            for folder in (package, package.with_name(f"{package.name}.libs")):
                if folder.exists():
                    ignored = shutil.ignore_patterns("include", "__pycache__", "*.py")
                    shutil.copytree(folder, copy / folder.name, symlinks=True, ignore=ignored)
            _readable(copy)
            try:
                copy.rename(kept)
            except OSError:
                if not kept.exists():  # another command's copy came first
                    raise
    return kept / package.name / install.name


def _readable(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
