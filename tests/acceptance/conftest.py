"""What several scenarios share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream.config import Config
from tests.support.effects import Effects


@pytest.fixture
def effects(config: Config) -> Iterator[Effects]:
    """The effect log in the test's database."""
    effects = Effects(config.database_url)
    yield effects
    effects.close()
