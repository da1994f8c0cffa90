from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stacks import checkout

pytestmark = pytest.mark.soak


def test_stack_whose_broker_dies_while_starting_names_its_log(tmp_path: Path) -> None:
    with checkout(tmp_path / "shop") as shop:
        shop.up()
        assert shop.run("down").wait() == 0
        meta = shop.data / "kafka" / "data" / "meta.properties"
        meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))

        command = shop.run("up")
        assert command.wait() == 1
        assert "Traceback" not in command.stderr
        (error,) = [line for line in command.stderr.splitlines() if line.startswith("Error: ")]
        assert error.startswith(f"Error: Kafka died while starting; {shop.data / 'kafka.log'} says: ")
        assert "node id" in error.lower()

        status = shop.run("status")
        assert status.wait() == 3
        assert "Kafka       stopped" in status.stdout
        assert "-> stream stack up" in status.stderr
