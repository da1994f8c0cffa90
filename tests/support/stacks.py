"""Stacks of a test's own: started through the command, gone after the test whatever became of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stream import stack
from stream.stack import jars
from tests.support.processes import Command, run

# A proxy that nobody listens on: whatever asks for the network fails at once.
NO_NETWORK = {
    name: "http://127.0.0.1:9" for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
}


@dataclass(frozen=True)
class Checkout:
    """A project folder with a stack in it, or not yet."""

    folder: Path
    env: Mapping[str, str]

    @property
    def data(self) -> Path:
        return self.folder / stack.FOLDER

    def run(self, *arguments: str, seconds: float = 90) -> Command:
        """Run `stream stack ...` in the folder to its end."""
        return run("stack", *arguments, env=self.env, cwd=self.folder, seconds=seconds)

    def begin(self, *arguments: str) -> Command:
        """Start `stream stack ...` in the folder."""
        return Command("stack", *arguments, env=self.env, cwd=self.folder)

    def up(self) -> stack.Addresses:
        """`stream stack up`, which must go well; returns where the servers are."""
        command = self.run("up")
        assert command.wait() == 0, command.stderr
        addresses = stack.running(self.folder)
        assert addresses is not None
        return addresses


@contextmanager
def checkout(folder: Path, **variables: str) -> Iterator[Checkout]:
    """A new project folder; its servers and data are gone afterwards."""
    folder.mkdir(parents=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_")}
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"):
        inherited.pop(name, None)
    made = Checkout(folder, {**inherited, **variables})
    try:
        yield made
    finally:
        stack.down(made.data, delete=True)


def copy_of_the_cache(folder: Path) -> Path:
    """The jars of this machine under another cache folder, which is returned: a test may damage them."""
    jars.ensure(print)
    source = jars.cache_folder()
    shutil.copytree(source, folder / source.relative_to(source.parents[1]))
    return folder
