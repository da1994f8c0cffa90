"""Opening connections while the server does not want them."""

from __future__ import annotations

import threading
from collections import Counter

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from stream import database
from stream.errors import Unreachable, UsageError

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


@pytest.mark.parametrize(
    "url", ["nonsense", "postgresql://u:s3cret%zz@h/d", "user=u password=s3cret nosuch=1"]
)
def test_what_is_no_connection_string_is_a_mistake_of_the_user_and_shows_no_password(url: str) -> None:
    with pytest.raises(UsageError, match="no valid connection string") as caught:
        database.connect(url, application_name="test")
    assert caught.value.exit_code == 2
    assert "s3cret" not in str(caught.value)


def test_a_server_that_refuses_is_there_so_only_the_address_is_to_be_checked(database_url: str) -> None:
    with pytest.raises(Unreachable, match="does not exist") as caught:
        database.connect(make_conninfo(database_url, dbname="nothing"), application_name="test")
    assert caught.value.hint == "check DATABASE_URL"
