from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from stream import stack
from tests.support.stacks import checkout

pytestmark = pytest.mark.soak


def test_stack_of_two_checkouts_does_not_clash(tmp_path: Path) -> None:
    """Both started in the same moment, so that both want the same ports."""
    with checkout(tmp_path / "one" / "shop") as one, checkout(tmp_path / "two" / "shop") as two:
        starts = [shop.begin("up") for shop in (one, two)]
        assert [start.wait(90) for start in starts] == [0, 0], [start.stderr for start in starts]
        first, second = (stack.running(shop.folder) for shop in (one, two))
        assert first is not None and second is not None
        addresses = {first.bootstrap_servers, second.bootstrap_servers}
        databases = {url.rpartition("@")[2] for url in (first.database_url, second.database_url)}
        assert len(addresses) == len(databases) == 2

        with psycopg.connect(first.database_url) as connection:
            connection.execute("create table only_here ()")
        with psycopg.connect(second.database_url) as connection:
            assert connection.execute("select to_regclass('only_here')").fetchone() == (None,)

        assert one.run("down").wait() == 0
        assert two.run("status").wait() == 0
        assert one.up() == first
