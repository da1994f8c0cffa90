"""Every command: its exit code, data on stdout only, JSON that parses, and next commands that are taken.

One row a case. To add a command, add rows: what goes well, what is not there, what is named wrongly, what is refused,
and who is away. Each runs on its own copy of a shop in which all of it has happened (tests/support/troubles.py).
"""

from __future__ import annotations

import json
import os
import shlex
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import psycopg
import pytest
import structlog
from click.testing import CliRunner, Result
from psycopg import sql

from stream import stack
from stream.cli import main
from stream.config import Config
from stream.stack import ports
from tests.conftest import ROOT, database_named
from tests.support.commands import parse, typed_next
from tests.support.troubles import Troubles, drop
from tests.unit.test_help import ALL as COMMANDS

pytestmark = pytest.mark.long

NO_BROKER, NO_DATABASE, EMPTY = "no broker", "no database", "empty database"


@dataclass(frozen=True)
class Case:
    """`words` as they are typed after `stream`; a command that prints JSON gets `--format json` behind them."""

    words: str
    code: int
    where: str = ""

    @property
    def arguments(self) -> list[str]:
        return shlex.split(self.words)

    @property
    def command(self) -> click.Command:
        path = ["stream"]
        for word in self.arguments:
            if " ".join([*path, word]) not in COMMANDS:
                break
            path.append(word)
        return COMMANDS[" ".join(path)].command

    @property
    def has_format(self) -> bool:
        return any("--format" in parameter.opts for parameter in self.command.params)


CASES = [
    Case("outbox status", 0),
    Case("outbox status", 3, NO_DATABASE),
    Case("outbox status", 5, EMPTY),
    Case("outbox status", 0, NO_BROKER),
    Case("outbox peek", 0),
    Case("outbox peek --key nobody", 0),
    Case("outbox peek --limit 0", 2),
    Case("outbox rejected", 0),
    Case("outbox rejected --topic nothing", 0),
    Case("outbox retry", 0),
    Case("outbox retry --execute", 0),
    Case("outbox retry --key odd", 0),
    Case("outbox retry --key nobody", 1),
    Case(r"outbox retry --key '\x0'", 2),
    Case("outbox discard --reason x", 2),
    Case("outbox discard --key odd --reason ' '", 2),
    Case("outbox discard --key odd --reason x", 0),
    Case("outbox discard --topic things --reason x", 0),
    Case("outbox discard --id 999 --reason x", 1),
    Case("outbox discard --key odd --reason x", 3, NO_DATABASE),
    Case("parked list", 0),
    Case("parked list --key nobody", 0),
    Case("parked list --group nobody", 2),
    Case("parked list", 3, NO_DATABASE),
    Case("parked list", 5, EMPTY),
    Case("parked list", 0, NO_BROKER),
    Case("parked retry", 0),
    Case("parked retry --key late", 0),
    Case("parked retry --key dead", 4),
    Case("parked retry --key nobody", 1),
    Case("parked release", 0),
    Case("parked release --key dead", 0),
    Case("parked release --key late", 4),
    Case("parked release --key nobody", 1),
    Case("parked release --key dead --partition 0", 2),
    Case("parked discard --reason x", 2),
    Case("parked discard --key late --reason x", 0),
    Case("parked discard --group testers --reason x", 0),
    Case("parked discard --group testers --reason x --execute", 0),
    Case("dlq list", 0),
    Case("dlq list --all", 0),
    Case("dlq list --status open", 2),
    Case("dlq list --fingerprint nothing", 0),
    Case("dlq list --group nobody", 2),
    Case("dlq list --since yesterday", 2),
    Case("dlq list", 3, NO_DATABASE),
    Case("dlq list", 5, EMPTY),
    Case("dlq list", 0, NO_BROKER),
    Case("dlq show 1", 0),
    Case("dlq show 999", 1),
    Case("dlq show one", 2),
    Case("dlq export", 0),
    Case("dlq export --group nobody", 2),
    Case("dlq replay", 2),
    Case("dlq replay 1", 0),
    Case("dlq replay 999", 1),
    Case("dlq replay 1 999", 0),
    Case("dlq replay 998 999", 4),
    Case("dlq replay --group testers", 0),
    Case("dlq replay --group testers --execute", 0),
    Case("dlq replay --group testers --rate fast", 2),
    Case("dlq replay 1", 3, NO_DATABASE),
    Case("dlq discard 1 --reason x", 0),
    Case("dlq discard --group testers --reason x", 0),
    Case("dlq discard --reason x", 2),
    Case("order show done", 0),
    Case("order show dead", 0),
    Case("order show new", 0),
    Case("order show odd", 0),
    Case("order show nobody", 1),
    Case("order show done", 3, NO_BROKER),
    Case("order show done", 3, NO_DATABASE),
    Case("groups list", 0),
    Case("groups list", 3, NO_BROKER),
    Case("groups list", 3, NO_DATABASE),
    Case("groups list", 5, EMPTY),
    Case("groups describe testers", 0),
    Case("groups describe tester", 2),
    Case("groups describe testers", 3, NO_BROKER),
    Case("groups pause testers --reason x", 0),
    Case("groups pause tester --reason x", 2),
    Case("groups pause testers --reason ' '", 2),
    Case("groups pause testers --reason x --for long", 2),
    Case("groups resume testers", 0),
    Case("groups resume testers", 3, NO_DATABASE),
    Case("topics inspect things", 0),
    Case("topics inspect things --key done", 0),
    Case("topics inspect things --key nobody", 0),
    Case("topics inspect nothing", 2),
    Case("topics inspect things -o somewhere", 2),
    Case("topics inspect things -p 99", 2),
    Case("topics inspect things", 3, NO_BROKER),
    Case("topics inspect things", 0, NO_DATABASE),
    Case("topics list", 0),
    Case("topics list", 3, NO_BROKER),
    Case("topics list", 0, NO_DATABASE),
    Case("topics tail things -c 2", 0),
    Case("topics tail testers.dlq", 0),
    Case("topics tail nothing", 2),
    Case("topics tail things", 3, NO_BROKER),
    Case("topics grow things --partitions 9", 4),
    Case("topics grow things --partitions 1", 2),
    Case("topics grow nothing --partitions 9", 2),
    Case("topics grow things --partitions 9", 3, NO_BROKER),
    Case("groups adopt testers --topic things", 2),
    Case("groups adopt testers --topic nothing --to-earliest", 4),
    Case("groups adopt tester --topic things --to-earliest", 2),
    Case("groups adopt testers --topic things --to-earliest", 3, NO_BROKER),
    Case("rewind --group testers --to-earliest", 0),
    Case("rewind --group testers --to-current --reapply", 0),
    Case("rewind --group testers --to-earliest --execute", 2),
    Case("rewind --group testers", 2),
    Case("rewind --group testers --to-earliest --to-latest", 2),
    Case("rewind --group tester --to-earliest", 2),
    Case("rewind --group testers --to-earliest --topic nothing", 2),
    Case("rewind --group testers --to-earliest", 3, NO_BROKER),
    Case("rewind --group testers --to-earliest", 3, NO_DATABASE),
    Case("rewind --group testers --to-earliest", 5, EMPTY),
    Case("ledger prune --older-than 400d", 0),
    Case("ledger prune --older-than 400d --execute", 0),
    Case("ledger prune --older-than 600d", 0),
    Case("ledger prune --older-than 1s", 4),
    Case("ledger prune --older-than 1s --execute", 4),
    Case("ledger prune --older-than old", 2),
    Case("ledger prune --older-than 400d --group tester", 2),
    Case("ledger prune --older-than 1s", 3, NO_BROKER),
    Case("ledger prune --older-than 1s", 3, NO_DATABASE),
    Case("ledger prune --older-than 1s", 5, EMPTY),
    Case("doctor", 0),
    Case("doctor", 5, NO_BROKER),
    Case("doctor", 5, NO_DATABASE),
    Case("doctor", 5, EMPTY),
    Case("schema check", 0),
    Case("schema check --locked", 0),
    Case("schema new 'no name'", 2),
    Case("migrate --check", 0),
    Case("migrate", 0),
    Case("migrate --check", 5, EMPTY),
    Case("migrate --check", 3, NO_DATABASE),
    Case("migrate --check", 3, NO_BROKER),
    Case("consume --group tester", 2),
    Case("consume --group testers", 3, NO_BROKER),
    Case("consume --group testers", 3, NO_DATABASE),
    Case("consume --group testers", 5, EMPTY),
    Case("relay --once", 3, NO_BROKER),
    Case("relay --once", 3, NO_DATABASE),
    Case("relay --once", 5, EMPTY),
    Case("stack status", 3),
    Case("stack env", 3),
    Case("--nothing", 2),
    Case("nothing", 2),
    Case("dlq nothing", 2),
    Case("dlq list --nothing", 2),
]
# A family with commands that act as servers do, or that make what a test must not: their tests are elsewhere.
ELSEWHERE = {"stream demo", "stream dev", "stream init"}
# Next commands that go on until they are stopped, or start servers.
NOT_RUN = ("consume", "relay", "dev", "demo", "stack up", "init")


@pytest.fixture(scope="module")
def troubles(
    servers: stack.Addresses, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Troubles]:
    name = f"troubles_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(servers.database_url, autocommit=True) as conn:
        conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    config = Config(
        project=ROOT,
        bootstrap_servers=servers.bootstrap_servers,
        database_url=database_named(servers.database_url, name),
        prefix=f"t{uuid.uuid4().hex[:8]}.",
    )
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_")}
    yield Troubles(config, tmp_path_factory.mktemp("shop") / "shop", {**inherited, **variables(config)})
    drop(config)


@pytest.fixture
def shop(troubles: Troubles) -> Iterator[Config]:
    copy = troubles.copy()
    yield copy
    drop(copy)


def variables(config: Config) -> dict[str, str]:
    return {
        "KAFKA_BOOTSTRAP_SERVERS": config.bootstrap_servers,
        "DATABASE_URL": config.database_url,
        "STREAM_PREFIX": config.prefix,
    }


def at(config: Config, where: str) -> Config:
    if where == NO_BROKER:
        return replace(config, bootstrap_servers=f"127.0.0.1:{ports.choose(None)}")
    if where == NO_DATABASE:
        return replace(config, database_url=f"postgresql://user:secret@127.0.0.1:{ports.choose(None)}/shop")
    if where == EMPTY:
        with psycopg.connect(config.database_url) as conn:
            conn.execute("drop schema stream cascade")
    return config


def type_in(config: Config, *words: str) -> Result:
    """As it is typed in the project's folder."""
    here = Path.cwd()
    os.chdir(config.project)
    try:
        return CliRunner().invoke(main, list(words), env=variables(config))
    finally:
        os.chdir(here)
        structlog.reset_defaults()


def check_ending(result: Result, case: Case) -> None:
    assert result.exit_code == case.code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "secret" not in result.output
    assert not any(line.startswith("Error: ") for line in result.stdout.splitlines())
    if case.words != "doctor":  # its fixes are what it is asked for
        assert not any(line.startswith("-> ") for line in result.stdout.splitlines())
    if case.code:
        assert result.stderr.splitlines()[-1].startswith("-> "), result.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.words} {case.where}".strip())
def test_a_command_ends_as_documented_and_what_it_says_to_type_next_is_taken(
    case: Case, shop: Config
) -> None:
    config = at(shop, case.where)
    result = type_in(config, *case.arguments)
    check_ending(result, case)
    for command in dict.fromkeys(typed_next(result.output)):
        parse(command)
        words = shlex.split(command)[1:]
        if not " ".join(words).startswith(NOT_RUN):
            followed = type_in(shop, *words)
            assert followed.exit_code != 2, f"{command}: {followed.output}"
            assert followed.exception is None or isinstance(followed.exception, SystemExit), command


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.has_format], ids=lambda case: f"{case.words} {case.where}".strip()
)
def test_json_parses_and_stands_alone_on_stdout(case: Case, shop: Config) -> None:
    result = type_in(at(shop, case.where), *case.arguments, "--format", "json")
    check_ending(result, case)
    if case.code == 0 or result.stdout:
        json.loads(result.stdout)


def test_json_lines_parse(shop: Config) -> None:
    lines = type_in(shop, "dlq", "export").stdout.splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["dead"]


def test_every_command_has_its_rows() -> None:
    typed = {" ".join(["stream", *case.arguments[:n]]) for case in CASES for n in (1, 2)}
    commands = {path for path, context in COMMANDS.items() if not isinstance(context.command, click.Group)}
    without = {path for path in commands - typed if " ".join(path.split()[:2]) not in ELSEWHERE}
    assert without == {"stream stack up", "stream stack down"}
