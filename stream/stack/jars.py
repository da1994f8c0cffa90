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
FETCH_TIMEOUT_S = 30
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


def ensure(progress: Callable[[str], None]) -> list[Path]:
    """Paths of all jars, every one of them checked; what is missing or damaged is downloaded.

    Raises StreamError where it has to download and cannot. `progress` is called from this thread.
    """
    folder = cache_folder()
    missing = [jar for jar in pinned() if not is_intact(folder / jar.file, jar)]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, progress):
            _download([jar for jar in missing if not is_intact(folder / jar.file, jar)], folder, progress)
    return [folder / jar.file for jar in pinned()]


def is_intact(path: Path, jar: Jar) -> bool:
    """Whether the file is there and is the very jar of the list."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except FileNotFoundError:
        return False


def _download(jars: Sequence[Jar], folder: Path, progress: Callable[[str], None]) -> None:
    """Fetch in parallel, by way of a scratch folder: a jar is in the cache whole and checked, or not at all."""
    for left_behind in folder.glob(f"{SCRATCH}*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    if not jars:
        return
    progress(f"downloading Apache Kafka {KAFKA_VERSION}: {len(jars)} jars (45 MB in all) into {folder}")
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
    import requests
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=scratch, timeout=FETCH_TIMEOUT_S)
    artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact()
    for attempt in range(1, TRIES + 1):
        try:
            path = Path(artifact.resolve())
            break
        except requests.RequestException as error:
            # A jar cut off in the middle is left behind, and the next try would take it for whole.
            shutil.rmtree(scratch / artifact.component.path_prefix, ignore_errors=True)
            if attempt == TRIES:
                raise StreamError(
                    f"Apache Kafka {KAFKA_VERSION} is not in {folder} yet, and the Maven repository cannot"
                    f" be reached ({type(error).__name__}); the first start needs the network, later ones do not",
                    hint="stream stack up   (with the network, or HTTPS_PROXY set)",
                ) from error
    if not is_intact(path, jar):
        raise StreamError(
            f"{jar.file}: the Maven repository sent another file than the one that was pinned (SHA-256)"
        )
    size = path.stat().st_size
    path.replace(folder / jar.file)
    return size
