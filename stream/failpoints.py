"""Named failpoints: where the tests kill, stop or end this process, one at each step that could lose something.

Off unless the environment says otherwise: STREAM_FAILPOINTS="relay.acknowledged=kill". An action is `kill`
(SIGKILL), `stop` (SIGSTOP) or `exit`; `kill@3` acts at the third time the step is reached. Several are
separated by commas.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

from stream.errors import UsageError

VARIABLE = "STREAM_FAILPOINTS"

NAMES = frozenset(
    {
        "relay.read",  # rows read, nothing produced
        "relay.produced",  # rows handed to the client, nothing acknowledged
        "relay.acknowledged",  # acknowledged, not yet deleted
        "relay.deleted",  # deleted
        "relay.rejecting",  # a row refused alone, not yet moved
        "relay.promoted",  # due rows moved to the outbox
        "consume.claimed",  # ledger rows written, no handler run
        "consume.handled",  # handlers have run, nothing committed
        "consume.before_commit",  # the last statement before the database commit
        "consume.after_commit",  # committed, the processor does not know yet
        "consume.before_offset_commit",  # about to commit offsets
        "consume.after_offset_commit",  # offsets committed
        "consume.revoke",  # partitions are being taken away
        "fail.parking",  # parked rows written, not committed
        "fail.parked",  # parked rows committed, the processor does not know yet
        "fail.burying",  # a dead letter written, not committed
        "fail.buried",  # a dead letter committed
        "fail.woken",  # a retry run holds its keys' locks and claims, no handler has run
        "fail.unparking",  # a parked event is applied and its row gone, not committed
        "fail.unparked",  # the same, committed
        "rewind.asked",  # members were asked to make way
        "rewind.away",  # the group has no members any more
        "rewind.saved",  # the old offsets are saved for undo
        "rewind.planned",  # what will be done stands in the database
        "rewind.moved",  # the broker has the new offsets, nobody has read them back
        "rewind.settled",  # they are read back, and ranges that run again are in force
        "rewind.ended",  # all is done, nothing was said
    }
)
ACTIONS: dict[str, Callable[[], object]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "exit": lambda: os._exit(1),
}


def _off(name: str) -> None:
    """No failpoint is set: nothing to do."""


def _armed(settings: dict[str, tuple[Callable[[], object], int]]) -> Callable[[str], None]:
    reached = dict.fromkeys(settings, 0)

    def failpoint(name: str) -> None:
        if name in settings:
            reached[name] += 1
            act, nth = settings[name]
            if reached[name] == nth:
                act()

    return failpoint


def parse(text: str) -> dict[str, tuple[Callable[[], object], int]]:
    """`name=action[@nth],...`; raises UsageError on a name or action that is not in the closed lists."""
    settings = {}
    for part in filter(None, text.split(",")):
        name, _, action = part.partition("=")
        action, counted, nth = action.partition("@")
        if name not in NAMES or action not in ACTIONS or (counted and not re.fullmatch("[1-9][0-9]*", nth)):
            raise UsageError(
                f"{VARIABLE}: cannot read {part!r}; expected NAME=ACTION[@NTH] with "
                f"NAME one of {', '.join(sorted(NAMES))} and ACTION one of {', '.join(ACTIONS)}"
            )
        settings[name] = (ACTIONS[action], int(nth or "1"))
    return settings


failpoint: Callable[[str], None] = _armed(parse(os.environ[VARIABLE])) if os.environ.get(VARIABLE) else _off
