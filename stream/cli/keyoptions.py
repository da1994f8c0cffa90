"""The options that choose parked keys, and choose them again in the command that is printed to be typed next."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from stream.cli.common import database_options
from stream.errors import UsageError
from stream.keys import HEX, typed_key

group_option = click.option("--group", metavar="NAME", help="Only keys of this consumer group.")
topic_option = click.option("--topic", help="Only keys of this topic.")
key_option = click.option("--key", metavar="KEY", help=f"Only this key: text, or {HEX} and hex.")
partition_option = click.option(
    "--partition", type=click.IntRange(0), help="Only the records without a key of this partition."
)
execute_option = click.option("--execute", is_flag=True, help="Act; without it several are only listed.")


@dataclass(frozen=True, slots=True)
class WhichKeys:
    """The keys that were chosen, as they were typed; None: any."""

    group: str | None
    topic: str | None
    key: str | None
    partition: int | None

    @property
    def one(self) -> bool:
        return self.key is not None or self.partition is not None

    @property
    def filters(self) -> dict[str, Any]:
        """As `parked.keys` takes them. Raises UsageError for a key that is typed wrongly."""
        key = None if self.key is None else typed_key(self.key)
        return {"group": self.group, "topic": self.topic, "key": key, "partition": self.partition}

    @property
    def words(self) -> list[str]:
        """The words of a command line that choose the same keys again."""
        number = None if self.partition is None else str(self.partition)
        options = {"--group": self.group, "--topic": self.topic, "--key": self.key, "--partition": number}
        return [word for name, value in options.items() if value is not None for word in (name, value)]


def key_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what chooses keys, and --execute, to a command that needs the database; it gets `which` and `execute`."""

    @functools.wraps(command)
    def with_which(
        *args: Any,
        group: str | None,
        topic: str | None,
        key: str | None,
        partition: int | None,
        **kwargs: Any,
    ) -> Any:
        if key is not None and partition is not None:
            raise UsageError(
                "--key or --partition, one or the other: a partition is for records without a key"
            )
        return command(*args, which=WhichKeys(group, topic, key, partition), **kwargs)

    decorated = database_options(with_which)
    for option in (execute_option, partition_option, key_option, topic_option, group_option):
        decorated = option(decorated)
    return decorated
