"""Opening connections while the server does not want them."""

from __future__ import annotations

import threading
from collections import Counter

import psycopg

from stream import database
from stream.errors import Unreachable

TERMINATE = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'victim'"


def test_a_connection_lost_while_it_is_made_is_unreachable_and_nothing_else(database_url: str) -> None:
    """Wherever in the making it happens: at every outage, somebody is just connecting."""
    done = threading.Event()

    def terminate() -> None:
        with psycopg.connect(database_url, autocommit=True) as conn:
            while not done.is_set():
                conn.execute(TERMINATE)

    terminator = threading.Thread(target=terminate)
    terminator.start()
    ends: Counter[str] = Counter()
    try:
        for _ in range(100):
            try:
                database.connect(
                    database_url, application_name="victim", settings={"lock_timeout": "5s"}
                ).close()
            except Exception as error:  # noqa: BLE001  # what it is, is looked at below
                ends[type(error).__name__] += 1
    finally:
        done.set()
        terminator.join()
    assert set(ends) == {Unreachable.__name__}
