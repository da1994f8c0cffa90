"""The demo: the main job on real servers, with a worker killed in the middle, and a statement that is checked.

    shop -> outbox -> relay -> topics -> invoicing, email, stock -> mail provider

It has a database and a prefix of its own, so that it touches nothing else and can be run again. The e-mail worker
is killed while the provider has its mail and has not answered: the one moment in which a mail can go out twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stream import app, database, stack
from stream.config import Config
from stream.demo import checks, retail, shop
from stream.demo.checks import Check
from stream.demo.children import Children
from stream.demo.orders import Order
from stream.demo.placing import Placing
from stream.demo.provider import Mail, MailProvider
from stream.demo.surroundings import own_names
from stream.demo.table import Display
from stream.demo.watch import Seen, Watch
from stream.discovery import discover
from stream.errors import StreamError
from stream.project import Project
from stream.servers import servers

GROUPS = ("invoicing", "email", "stock")
VICTIM = "email"
PATIENCE_S = 60.0  # without any progress
TICK_S = 0.1


@dataclass(frozen=True)
class Statement:
    """What the demo ends with: its checks, and the story of the order whose worker was killed."""

    checks: list[Check]
    order_id: str | None
    story: str

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


def run(folder: Path, *, count: int, csv: Path | None, afterwards: Callable[[str], None]) -> Statement:
    """The whole of it, in about a minute. Raises StreamError where it cannot be run to its end.

    `afterwards` is told what became of the project's servers.
    """
    orders = None if csv is None else retail.read(csv).orders
    project = Project(folder)
    display = Display()
    with (
        servers(project, display.news, afterwards=afterwards) as given,
        own_names(given, GROUPS) as config,
    ):
        app.migrate(config, project)
        with _connected(config) as connection:
            shop.make_tables(connection)
        with MailProvider() as provider:
            environment = {
                "KAFKA_BOOTSTRAP_SERVERS": config.bootstrap_servers,
                "DATABASE_URL": config.database_url,
                "STREAM_PREFIX": config.prefix,
                "STREAM_SMTP_URL": provider.url,
            }
            logs = project.root / stack.FOLDER / "demo"
            with Children(project.root, logs, environment) as children:
                return Demo(config, project, provider, children, display).run(count, orders)


class Killer:
    """Kills the victim at its n-th mail, on the provider's thread: the provider has it and has not answered."""

    def __init__(self, at: int, children: Children) -> None:
        self.struck = threading.Event()
        self.mail: Mail | None = None
        self.pid = 0
        self._left = at
        self._children = children

    def __call__(self, mail: Mail) -> None:
        self._left -= 1
        if self._left == 0:
            self.mail, self.pid = mail, self._children.kill(VICTIM)
            self.struck.set()


class Demo:
    """One run, step by step."""

    def __init__(
        self, config: Config, project: Project, provider: MailProvider, children: Children, display: Display
    ) -> None:
        self._config, self._project = config, project
        self._provider, self._children, self._display = provider, children, display
        groups = discover(project)
        self._watch = Watch(config, [groups[name] for name in GROUPS], list(project.topics.topics))

    def run(self, count: int, orders: Sequence[Order] | None) -> Statement:
        placing = Placing(self._config, self._project, count=count, orders=orders)
        # An order brings about two mails, so this is in the middle.
        killer = Killer(count if orders is None else len(orders), self._children)
        self._provider.on_mail = killer
        self._children.start("relay", "relay")
        for group in GROUPS:
            self._children.start(group, "consume", "--group", group)
        placing.start()
        self._watch.start()
        try:
            with self._display.showing(lambda: self._watch.seen):
                in_flight = self._see_it_through(placing, killer)
        finally:
            placing.stop()
            self._watch.stop()
        return self._statement(killer, in_flight)

    def _see_it_through(self, placing: Placing, killer: Killer) -> set[str]:
        """Until nothing is left to do; returns the Message-IDs that were in flight at the kill."""

        done_at: list[int] = []  # the look at which all was placed

        def finished() -> bool:
            if placing.done and not done_at:
                done_at.append(self._watch.looks)
            return bool(done_at) and min(self._watch.looks - done_at[0], self._watch.idle) > 1

        in_flight: set[str] = set()
        self._wait(placing, lambda: killer.struck.is_set() or finished())
        if killer.struck.is_set():
            self._display.news(
                f"killed the {VICTIM} worker (SIGKILL, process {killer.pid}) in the middle of a mail"
            )
            in_flight = self._in_flight()
            self._children.start(VICTIM, "consume", "--group", VICTIM)
            self._display.news(
                f"started it again; mails that the provider has and it had not noted: {len(in_flight)}"
            )
        self._wait(placing, finished)
        return in_flight

    def _wait(self, placing: Placing, condition: Callable[[], bool]) -> None:
        """Until the condition holds. Raises where a part of the demo has ended, or nothing moves any more."""
        last, moved = Seen(), time.monotonic()
        while not condition():
            placing.check()
            self._watch.check()
            for name, code in self._children.ended().items():
                if name != VICTIM or code != -9:
                    raise StreamError(f"{name} ended with {code}:\n{self._children.tail(name)}")
            if self._watch.seen.progress != last.progress:
                last, moved = self._watch.seen, time.monotonic()
            if time.monotonic() - moved > PATIENCE_S:
                raise StreamError(
                    f"nothing has moved for {PATIENCE_S:.0f} s: {last}; logs are in {self._children.logs}"
                )
            self._display.tick(self._watch.seen)
            time.sleep(TICK_S)

    def _in_flight(self) -> set[str]:
        """Mails the provider has and the killed worker had not noted, once its last session is gone."""
        with _connected(self._config) as connection:
            sessions = (
                "select count(*) from pg_stat_activity"
                " where datname = current_database() and application_name = %s"
            )
            until = time.monotonic() + PATIENCE_S
            while connection.execute(sessions, [f"stream-{VICTIM}"]).fetchone() != (0,):
                if time.monotonic() > until:
                    raise StreamError("the killed worker's sessions are still there")
                time.sleep(TICK_S)
            noted = {id for (id,) in connection.execute("select message_id from mail")}
        return {mail.message_id for mail in self._provider.mails} - noted

    def _statement(self, killer: Killer, in_flight: set[str]) -> Statement:
        with _connected(self._config) as connection:
            found = [
                checks.orders(connection, self._watch.records),
                checks.invoices(connection),
                checks.mails(connection, self._provider.mails, in_flight),
                checks.stock(connection),
            ]
            if killer.mail is None:
                return Statement(found, None, "")
            row = connection.execute(
                "select order_id from mail where message_id = %s", [killer.mail.message_id]
            ).fetchone()
        order_id = str(row[0]) if row else None
        code, story = self._children.output("order", "show", order_id) if order_id else (0, "")
        if code != 0:
            found.append(Check("order show", f"stream order show {order_id}", [f"it ended with {code}"]))
        return Statement(found, order_id, story)


def _connected(config: Config) -> database.Connection:
    return database.connect(config.database_url, application_name="stream-demo", autocommit=True)
