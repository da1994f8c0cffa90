"""The jars of Apache Kafka: pinned by SHA-256, fetched once into the user's cache, checked at each start."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from stream.errors import StreamError
from stream.stack.state import locked

KAFKA_VERSION = "4.3.1"
THREADS = 8
FETCH_TIMEOUT_S = 15
TRIES = 3
SCRATCH = "fetch-"


@dataclass(frozen=True)
class Jar:
    """One line of `jars.txt`."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


@cache
def pinned() -> tuple[Jar, ...]:
    """The jars of the list shipped with this package, in its order."""
    text = files("stream.stack").joinpath("jars.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return tuple(Jar(*line.split(":")) for line in lines)


def cache_folder() -> Path:
    """Where this user's jars are, shared by all projects: nothing in it belongs to one of them."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "order-event-stream" / f"kafka-{KAFKA_VERSION}"


def ensure(progress: Callable[[str], None], wanted: Sequence[Jar] | None = None) -> list[Path]:
    """Paths of the jars (all of the list, if no others), every one of them checked; what is missing or damaged is
    downloaded.

    Raises StreamError where it has to download and cannot. `progress` is called from this thread.
    """
    folder = cache_folder()
    jars = pinned() if wanted is None else wanted
    missing = [jar for jar in jars if not is_intact(folder / jar.file, jar)]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, progress):
            _download([jar for jar in missing if not is_intact(folder / jar.file, jar)], folder, progress)
    return [folder / jar.file for jar in jars]


def is_intact(path: Path, jar: Jar) -> bool:
    """Whether the file is there and is the very jar of the list."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except FileNotFoundError:
        return False


def _download(jars: Sequence[Jar], folder: Path, progress: Callable[[str], None]) -> None:
    """Fetch in parallel, into a scratch folder first: a jar is in the cache whole and checked, or not."""
    for left_behind in folder.glob(f"{SCRATCH}*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    if not jars:
        return
    of_all = f"{len(jars)} jars, 45 MB," if len(jars) == len(pinned()) else f"{len(jars)} of its jars"
    progress(f"downloading Apache Kafka {KAFKA_VERSION}: {of_all} into {folder}")
    with (
        tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder) as scratch,
        ThreadPoolExecutor(THREADS, thread_name_prefix="jars") as pool,
    ):
        under_way = [pool.submit(_fetch, jar, Path(scratch), folder) for jar in jars]
        size = 0
        try:
            for done, future in enumerate(as_completed(under_way), start=1):
                size += future.result()
                if done % 10 == 0 or done == len(under_way):
                    progress(f"  {done} of {len(under_way)} jars, {size / 1e6:.1f} MB")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _fetch(jar: Jar, scratch: Path, folder: Path) -> int:
    """Fetch one jar, some tries if need be; returns its size in bytes."""
    for _ in range(TRIES):
        reason = _try(jar, scratch)
        if reason is None:
            break
    else:
        raise StreamError(
            f"Apache Kafka {KAFKA_VERSION} cannot be downloaded ({jar.file}: {reason}); the first start needs"
            " the network, later ones do not",
            hint="stream stack up   (again, with the network; HTTPS_PROXY is heeded)",
        )
    path = _scratch_path(jar, scratch)
    size = path.stat().st_size
    path.replace(folder / jar.file)
    return size


def _try(jar: Jar, scratch: Path) -> str | None:
    """One try; the reason where it failed. What came of it is removed: the next would take it for the jar."""
    import requests
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=scratch, timeout=FETCH_TIMEOUT_S)
    path = _scratch_path(jar, scratch)
    try:
        context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
    except requests.RequestException as error:
        reason = f"the Maven repository cannot be reached, {type(error).__name__}"
    except RuntimeError:
        reason = "the Maven repository does not have it"
    else:
        if is_intact(path, jar):
            return None
        reason = "the Maven repository sent another file than the pinned one"
    path.unlink(missing_ok=True)
    return reason


def _scratch_path(jar: Jar, scratch: Path) -> Path:
    return scratch.joinpath(*jar.group.split("."), jar.artifact, jar.version, jar.file)
