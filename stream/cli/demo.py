"""stream demo, stream demo place"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from stream import database
from stream.cli.common import config_options, format_option, print_json, project_of, say
from stream.config import Config

KINDS = ("placed", "returned", "adjusted", "there")


@click.group()
def demo() -> None:
    """See the whole of it work."""


@demo.command(epilog="Example:  stream demo place --csv orders/")
@click.option(
    "--csv", "path", type=click.Path(path_type=Path), required=True, help="A file, or a folder of them."
)
@format_option("text", "json")
@config_options
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
    with database.connect(config.database_url, application_name="stream-demo", autocommit=True) as connection:
        database.require_migrated(connection)
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
