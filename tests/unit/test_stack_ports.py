"""Which port a server of the embedded stack gets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from stream.stack import ports


def listener(host: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.bind((host, 0))
    made.listen(1)
    return made


@pytest.fixture(params=["127.0.0.1", "0.0.0.0"])
def busy(request: pytest.FixtureRequest) -> Iterator[int]:
    with listener(request.param) as one:
        yield one.getsockname()[1]


@pytest.fixture
def free() -> int:
    with listener("127.0.0.1") as one:
        return int(one.getsockname()[1])


def test_a_port_somebody_listens_on_is_not_free(busy: int) -> None:
    assert not ports.is_free(busy)


def test_a_port_nobody_listens_on_is_free(free: int) -> None:
    assert ports.is_free(free)


def test_the_port_of_the_last_time_is_taken_again(free: int) -> None:
    assert ports.choose(free, 1) == free


def test_the_usual_port_is_taken_where_there_was_no_last_time_or_it_is_gone(busy: int, free: int) -> None:
    assert ports.choose(None, free) == free
    assert ports.choose(busy, free) == free


def test_the_port_of_a_server_that_is_just_dying_is_waited_for() -> None:
    dying = listener("127.0.0.1")
    port = int(dying.getsockname()[1])
    timer = threading.Timer(0.2, dying.close)
    timer.start()
    assert ports.choose(port) == port
    timer.join()


def test_a_port_given_away_already_is_passed_over(free: int) -> None:
    assert ports.choose(free, free, taken=[free]) != free


def test_without_a_wanted_port_it_is_one_that_no_outgoing_connection_gets(busy: int) -> None:
    assert 1024 < ports.choose(None, busy) < 32768
