"""The port of a command that runs until it is stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from stream.cli.common import say
from stream.config import Config
from stream.monitor import Monitor
from stream.processor import Processor
from stream.relay import Relay


@contextmanager
def monitored(
    config: Config, *, groups: Sequence[Processor] = (), relay: Relay | None = None
) -> Iterator[None]:
    """While it runs, serve metrics and health where the config says so, if it does."""
    if config.metrics is None:
        yield
        return
    monitor = Monitor(config, config.metrics, groups=groups, relay=relay)
    say(f"metrics: {monitor.start()}/metrics   (and /livez, /readyz)")
    try:
        yield
    finally:
        monitor.close()
