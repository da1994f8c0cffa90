"""What a command loads before it does anything: its user waits for it."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("family", ["outbox", "parked"])
def test_commands_of_the_database_alone_load_no_kafka_client(family: str) -> None:
    code = f"import sys, stream.cli.{family}; sys.exit('confluent_kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
