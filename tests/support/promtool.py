"""Prometheus' own tool for rules. It is no Python package: taken from the PATH, or out of Debian's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

KEPT = Path(sys.executable).with_name("promtool")
MISSING = "promtool is not there: install Prometheus, whose package has it (apt-get install prometheus)"


def promtool() -> str:
    """The path of the program. Where it is not to be had, the test is skipped: it tests our rules, not our code."""
    found = shutil.which("promtool") or (str(KEPT) if KEPT.exists() else _unpacked())
    if found is None:
        pytest.skip(MISSING)
    return found


def _unpacked() -> str | None:
    """Out of Debian's package, without installing it: it would start a server."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return None
    with TemporaryDirectory() as folder:
        download = ["apt-get", "download", "prometheus"]
        if _fails(download, folder) and (_fails(["apt-get", "update"], folder) or _fails(download, folder)):
            return None
        [package] = Path(folder).glob("prometheus_*.deb")
        if _fails(["dpkg-deb", "-x", str(package), folder], folder):
            return None
        partial = KEPT.with_suffix(f".{os.getpid()}")
        shutil.copy(Path(folder) / "usr" / "bin" / "promtool", partial)
        partial.replace(KEPT)  # whole or not at all: another test may look for it now
    return str(KEPT)


def _fails(command: list[str], folder: str) -> bool:
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=60).returncode != 0
