"""What is said of groups that run nothing now."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from stream.cli.common import say
from stream.cli.text import printable


def say_holds(holds: Mapping[str, str]) -> None:
    """Name each held group with its reason, and the command that tells more (holds.held_groups)."""
    for group, hold in holds.items():
        say(
            f"group {group} is held ({printable(hold)}): its events run once it goes on\n"
            f"-> stream groups describe {shlex.quote(group)}"
        )
