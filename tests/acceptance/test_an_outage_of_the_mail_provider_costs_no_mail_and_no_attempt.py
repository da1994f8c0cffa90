"""The mail provider is away while orders go on; worker and relay are started again in the middle of it. Then every
mail goes out once, in its key's order, and what waited does not come all at once."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream import Outbox
from stream.config import RetrySettings
from stream.demo.provider import MailProvider
from stream.project import Project
from tests.support.effects import Effects
from tests.support.orders import an_order
from tests.support.processes import Command, run
from tests.support.waiting import until

pytestmark = pytest.mark.soak

ROOT = Path(__file__).resolve().parents[2]
KEYS = 40
CONCURRENCY = 8  # of the e-mail group


class Shop:
    """Places orders, `pause_s` apart, until the end of the `with`. `placed`: their event ids by key, in order."""

    def __init__(self, project: Project, url: str, pause_s: float) -> None:
        self.placed: dict[str, list[str]] = {str(key): [] for key in range(KEYS)}
        self._outbox, self._url, self._pause_s = Outbox(project), url, pause_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def count(self) -> int:
        return sum(map(len, self.placed.values()))

    def __enter__(self) -> Shop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as conn:
            while True:
                key = str(self.count % KEYS)
                id = self._outbox.append(conn, "OrderPlaced", key=key, data=an_order())
                self.placed[key].append(str(id))
                if self._stopping.wait(self._pause_s):
                    return


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("pause_s", "scale", "outage_s"),
    [(0.04, 0.4, 6.0), (20 * 0.02, 0.02, 8.0), (300 * 0.004, 0.004, 20 * 60 * 0.004)],
    ids=["steady orders", "an order per 20 s", "an order per 5 min"],
)
def test_an_outage_of_the_mail_provider_costs_no_mail_and_no_attempt(
    environment: dict[str, str],
    project: Project,
    conn: psycopg.Connection[Any],
    database_url: str,
    effects: Effects,
    pause_s: float,
    scale: float,
    outage_s: float,
) -> None:
    assert run("migrate", env=environment, cwd=ROOT).wait() == 0
    conn.execute("insert into shop.customer values ('17850', 'customer-17850@example.com')")
    conn.commit()
    accepted: list[float] = []
    with MailProvider() as provider:
        provider.on_mail = lambda _: accepted.append(time.monotonic())
        environment = {**environment, "STREAM_TIME_SCALE": str(scale), "STREAM_SMTP_URL": provider.url}
        with Shop(project, database_url, pause_s) as shop:
            relay = Command("relay", env=environment, cwd=ROOT)
            worker = Command("consume", "--group", "email", env=environment, cwd=ROOT)
            until(lambda: accepted, 30, lambda: worker.stderr[-3000:])

            provider.answer = "421 try later"  # first, so that no answer of a mail it took is cut off
            worker.says("try later")
            provider.stop()
            away_since = time.monotonic()
            worker.says("group.held")
            assert worker.stop() == 0
            tries = sum_of_tries(effects)
            worker = Command("consume", "--group", "email", env=environment, cwd=ROOT)
            worker.says("group.held")
            relay.kill()
            relay = Command("relay", env=environment, cwd=ROOT)
            until(lambda: time.monotonic() > away_since + outage_s and "probe.failed" in worker.stderr, 40)
            assert sum_of_tries(effects) == tries, "while it was away nobody was tried but by probes"
            assert effects.fetch("select count(*) from stream.dead_letter") == [(0,)]

            before = len(accepted)
            provider.answer = None
            provider.start()
            until(lambda: len(accepted) > before, 30, lambda: worker.stderr[-3000:])
            ramp_s = RetrySettings().scaled(scale).ramp_s
            until(lambda: time.monotonic() > accepted[before] + 2 * ramp_s)
        until(
            lambda: (
                len(accepted) >= shop.count and effects.fetch("select count(*) from mail") == [(shop.count,)]
            ),
            40,
            lambda: f"{len(accepted)} of {shop.count}\n{worker.stderr[-3000:]}",
        )
        assert worker.stop() == 0
        assert relay.stop() == 0

    first = accepted[before]
    # The probe's, then as many as the group has handlers, then twice as many more.
    assert sum(first <= at < first + ramp_s for at in accepted) <= 1 + CONCURRENCY
    assert sum(first <= at < first + 2 * ramp_s for at in accepted) <= 1 + 3 * CONCURRENCY
    sent: dict[str, list[str]] = {key: [] for key in shop.placed}
    for mail in provider.mails:
        sent[mail.subject.rpartition(" ")[2]].append(mail.message_id[1:].partition("@")[0])
    assert sent == shop.placed
    assert effects.fetch("select count(*) from stream.dead_letter") == [(0,)]
    assert effects.fetch("select count(*) from stream.parked") == [(0,)]


def sum_of_tries(effects: Effects) -> int:
    return int(effects.fetch("select coalesce(sum(attempts), 0) from stream.parked")[0][0])
