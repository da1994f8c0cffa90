"""Four writers hit one key for 8 s; it must not wait for a pause that never comes, nor for a free lock."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psycopg
import pytest

from stream.config import Config
from tests.support.processes import Command
from tests.support.small import make_project
from tests.support.topics import read_all
from tests.support.truth import Truth
from tests.support.waiting import until

pytestmark = pytest.mark.long

HIT_FOR_S, DELAY_S, MAX_WAIT_S = 8.0, 0.5, 2.0


def test_it_fires_again_and_again_never_more_than_a_second_late(
    config: Config, environment: dict[str, str], tmp_path: Path
) -> None:
    truth = Truth(config, make_project(tmp_path / "small"))
    relay = Command("relay", env=environment, cwd=truth.project.root)
    truth.commit("warm")
    truth.wait_published()
    begun = time.time()
    failures: list[BaseException] = []

    def hit() -> None:
        """`n` is when the event was appended, in milliseconds."""
        try:
            with psycopg.connect(config.database_url) as own:
                while time.time() < begun + HIT_FOR_S:
                    data = {"n": int(time.time() * 1000)}
                    truth.outbox.append(
                        own,
                        "Happened",
                        key="busy",
                        data=data,
                        delay=DELAY_S,
                        debounce="d",
                        max_wait=MAX_WAIT_S,
                    )
                    time.sleep(0.002)  # the transaction works
                    own.commit()
        except BaseException as failure:  # noqa: BLE001  # handed to the main thread
            failures.append(failure)

    writers = [threading.Thread(target=hit) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failures
    until(lambda: truth.unpublished() == 0, 5)
    assert relay.stop() == 0

    fired = [message for message in read_all(config, "things") if message.key() == b"busy"]
    at = [message.timestamp()[1] / 1000 - begun for message in fired]  # the broker's clock, this machine's
    newest = [truth.project.codec.decode(message.value() or b"")[1]["n"] / 1000 - begun for message in fired]
    assert len(fired) >= 3
    last = 0.0
    for moment, appended in zip(at, newest, strict=True):
        assert moment - last <= MAX_WAIT_S + 1 + 0.1, f"fired at {at}: later than its maximum wait"
        assert moment - appended < 1.1, "with the newest data"
        last = moment
    assert max(newest) > HIT_FOR_S - 0.5, "the last of all fires too"
