from __future__ import annotations

from pathlib import Path

import pytest

from stream import stack
from stream.stack import jars
from tests.support.stacks import NO_NETWORK, checkout, copy_of_the_cache

pytestmark = pytest.mark.long


def test_stack_first_start_without_the_network_says_so(tmp_path: Path) -> None:
    with checkout(tmp_path / "shop", XDG_CACHE_HOME=str(tmp_path / "empty"), **NO_NETWORK) as shop:
        command = shop.run("up")
        assert command.wait() == 1
        error = command.stderr.splitlines()[-2:]
        assert error[0].startswith(f"Error: Apache Kafka {jars.KAFKA_VERSION} cannot be downloaded")
        assert "the first start needs the network, later ones do not" in error[0]
        assert error[1].startswith("-> stream stack up")
        assert "Traceback" not in command.stderr
        assert stack.processes(shop.data) == {}


def test_stack_fetches_a_damaged_jar_again_and_no_other(tmp_path: Path) -> None:
    cache = copy_of_the_cache(tmp_path / "cache")
    damaged = min(cache.rglob("*.jar"), key=lambda jar: jar.stat().st_size)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + b"!")
    with checkout(tmp_path / "shop", XDG_CACHE_HOME=str(cache)) as shop:
        command = shop.run("up")
        assert command.wait() == 0, command.stderr
        assert f"downloading Apache Kafka {jars.KAFKA_VERSION}: 1 of its jars" in command.stderr
    assert damaged.read_bytes() == content
