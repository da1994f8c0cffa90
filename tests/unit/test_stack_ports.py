"""Which port a server of the embedded stack gets."""

from __future__ import annotations

import socket
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


def test_the_first_free_of_the_wanted_ports_is_taken(busy: int, free: int) -> None:
    assert ports.choose(None, busy, free) == free


def test_a_port_given_away_already_is_passed_over(free: int) -> None:
    assert ports.choose(free, taken=[free]) != free


def test_without_a_wanted_port_it_is_one_that_no_outgoing_connection_gets(busy: int) -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        lowest = int(file.read().split()[0])
    assert 1024 < ports.choose(busy) < lowest
