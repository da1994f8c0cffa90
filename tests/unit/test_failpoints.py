"""Failpoints: the closed list, what is read from the environment, and when they act."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from stream import failpoints
from stream.errors import UsageError


def test_off_is_a_function_that_does_nothing() -> None:
    assert failpoints.failpoint is failpoints._off


def test_several_are_read_each_with_its_action_and_turn() -> None:
    settings = failpoints.parse("relay.read=stop,relay.deleted=kill@3,")
    assert {name: nth for name, (_, nth) in settings.items()} == {"relay.read": 1, "relay.deleted": 3}
    assert settings["relay.read"][0] is failpoints.ACTIONS["stop"]


@pytest.mark.parametrize(
    "text",
    ["relay.reed=kill", "relay.read", "relay.read=explode", "relay.read=kill@", "relay.read=kill@0",
     "relay.read=kill@-1", "relay.read=kill@²", "relay.read=kill@1.5", "=kill"],
)  # fmt: skip
def test_what_cannot_be_read_is_a_usage_error_with_the_names_there_are(text: str) -> None:
    with pytest.raises(UsageError, match=r"relay\.acknowledged.*exit") as refused:
        failpoints.parse(text)
    assert text in str(refused.value)


def test_it_acts_at_the_nth_time_and_no_other() -> None:
    acted: list[int] = []
    reach = failpoints._armed({"relay.read": (lambda: acted.append(1), 2)})
    for name in ("relay.read", "relay.deleted", "relay.read", "relay.read"):
        reach(name)
    assert acted == [1]


@pytest.mark.parametrize(("action", "ends_with"), [("kill", -signal.SIGKILL), ("exit", 1)])
def test_the_environment_arms_it_in_a_process(action: str, ends_with: int) -> None:
    code = "from stream.failpoints import failpoint; failpoint('relay.read'); failpoint('relay.read'); print('on')"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, failpoints.VARIABLE: f"relay.read={action}@2"},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (ends_with, b"")
