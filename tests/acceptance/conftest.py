"""What several scenarios share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream.config import Config
from stream.demo.provider import MailProvider
from tests.support.effects import Effects


@pytest.fixture
def effects(config: Config) -> Iterator[Effects]:
    """The effect log in the test's database."""
    effects = Effects(config.database_url)
    yield effects
    effects.close()


@pytest.fixture
def provider() -> Iterator[MailProvider]:
    """A mail provider that keeps what it gets."""
    with MailProvider() as provider:
        yield provider


@pytest.fixture
def env(environment: dict[str, str], provider: MailProvider) -> dict[str, str]:
    """The environment of commands whose mails go to the provider."""
    return {**environment, "STREAM_SMTP_URL": provider.url}
