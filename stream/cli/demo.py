"""stream demo, stream demo place, stream demo mail"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream.cli.common import database_options, format_option, print_json, project_of, project_option, say
from stream.cli.migrated import migrated
from stream.cli.signals import Stopper, interrupt
from stream.config import Config
from stream.errors import UsageError

if TYPE_CHECKING:
    from stream.demo.run import Statement

KINDS = ("placed", "returned", "adjusted", "there")


@click.group(
    invoke_without_command=True,
    short_help="See the whole of it work, and a statement checked.",
    epilog="Example:  stream demo --orders 1000",
)
@click.option("--orders", "count", default=400, show_default=True, type=click.IntRange(1), help="Made up.")
@click.option(
    "--csv", "path", type=click.Path(path_type=Path), help="Real ones instead: a file, or a folder of them."
)
@project_option
@click.pass_context
def demo(ctx: click.Context, count: int, path: Path | None, project_dir: Path) -> None:
    """See the whole of it work: orders through relay and groups, a worker killed, a statement checked.

    Runs on servers of its own unless addresses are given, in a database and under a prefix of its own. Ends
    with 0 if all of the statement is so, else with 1.
    """
    if ctx.invoked_subcommand is not None:
        return
    from stream.demo import run

    afterwards: list[str] = []
    Stopper("stopping relay, groups and servers (up to 40 s)").stop = interrupt
    try:
        statement = run.run(project_dir, count=count, csv=path, afterwards=afterwards.append)
    except KeyboardInterrupt:
        ctx.exit(0)
    _print_statement(statement)
    for line in ["", "the demo's database and topics are removed", *afterwards, *_next_commands()]:
        say(line)
    ctx.exit(0 if statement.ok else 1)


def _next_commands() -> list[str]:
    """What to type next, in a shell that may not have `stream` yet."""
    activate = Path(sys.argv[0]).with_name("activate")
    if shutil.which("stream") is None and activate.is_file():
        return [f"-> . {shlex.quote(os.path.relpath(activate))}", "-> stream init myshop"]
    return ["-> stream init myshop"]


def _print_statement(statement: Statement) -> None:
    click.echo()
    for check in statement.checks:
        click.echo(f"{'ok   ' if check.ok else 'WRONG'}  {check.name:<9} {check.says}")
        for wrong in check.wrong:
            click.echo(f"       {'':<9} {wrong}")
    if statement.order_id is not None:
        click.echo(
            f"\nThe order whose worker was killed, as `stream order show {statement.order_id}` told it:"
            f"\n\n{statement.story.rstrip()}"
        )


@demo.command(epilog="Example:  stream demo place --csv orders/")
@click.option(
    "--csv", "path", type=click.Path(path_type=Path), required=True, help="A file, or a folder of them."
)
@format_option("text", "json")
@database_options
def place(config: Config, path: Path, format_: str) -> None:
    """Place the orders of CSV files in the demo's shop. Those that are there already are left as they are.

    Columns, in any order: InvoiceNo, StockCode, Description, Quantity, InvoiceDate, UnitPrice, CustomerID,
    Country. An invoice number of digits is an order, C and digits a return; other letters are bookkeeping and
    left out. Nothing is placed where a row is wrong.
    """
    from stream.demo import retail
    from stream.demo.shop import Shop
    from stream.outbox import Outbox

    found = retail.read(path)
    counts: Counter[str] = Counter()
    with migrated(config, "stream-demo") as connection:
        shop = Shop(connection, Outbox(project_of(config)))
        for done in shop.place_all(found.orders):
            counts += done
    if format_ == "json":
        print_json({**{kind: counts[kind] for kind in KINDS}, "skipped_rows": dict(found.skipped)})
        return
    click.echo(
        f"{counts['placed']} orders, {counts['returned']} returns and {counts['adjusted']} stock adjustments"
        f" placed; {counts['there']} were there already"
    )
    for reason, rows in sorted(found.skipped.items()):
        say(f"left out: {rows} rows ({reason})")


@demo.command(
    short_help="A mail provider on this machine, for trials.",
    epilog="Example:  stream demo mail --port 2525 --answer '421 try later'",
)
@click.option("--port", default=2525, show_default=True, type=click.IntRange(0, 65535), help="0: a free one.")
@click.option("--answer", help="Give this answer to every mail instead of accepting it.")
@click.option("--delay", default=0.0, type=click.FloatRange(0), help="Seconds before the answer to a mail.")
def mail(port: int, answer: str | None, delay: float) -> None:
    """A mail provider on this machine for STREAM_SMTP_URL, in the foreground: one line of JSON a mail.

    It delivers nothing.
    """
    from stream.demo.provider import Mail, MailProvider

    def show(mail: Mail) -> None:
        fields = {"message_id": mail.message_id, "recipients": mail.recipients, "subject": mail.subject}
        click.echo(json.dumps(fields, ensure_ascii=False))

    provider = MailProvider(port)
    provider.answer, provider.delay, provider.on_mail = answer, delay, show
    Stopper("stopping").stop = interrupt
    try:
        provider.start()
    except OSError as error:
        raise UsageError(
            f"port {port} cannot be used: {error.strerror}", hint="stream demo mail --port 0"
        ) from None
    say(f"export STREAM_SMTP_URL={provider.url}")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    provider.stop()
