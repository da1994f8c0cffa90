"""Config: who wins, what is refused, and what is never shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stream import stack
from stream.cli import main
from stream.config import Config, shown_address
from stream.errors import NoProject, UsageError

ENVIRON = {"KAFKA_BOOTSTRAP_SERVERS": "env:9092", "DATABASE_URL": "postgresql://me:geheim@env/db"}


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "stream.toml").write_text('bootstrap_servers = "file:9092"\nprefix = "file."\n')
    config = Config.load(tmp_path, prefix="flag.", environ=ENVIRON)
    assert (config.bootstrap_servers, config.prefix) == ("env:9092", "flag.")
    config = Config.load(tmp_path, environ={"DATABASE_URL": "postgresql://h/d"})
    assert (config.bootstrap_servers, config.prefix) == ("file:9092", "file.")


def test_without_addresses_and_without_a_running_stack_it_says_what_to_type(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    with pytest.raises(UsageError, match="stream stack up"):
        Config.load(tmp_path, environ={})


@pytest.mark.parametrize(
    ("environ", "broker", "says"),
    [
        ({}, True, "no broker and database given, .* KAFKA_BOOTSTRAP_SERVERS and DATABASE_URL"),
        ({"DATABASE_URL": "postgresql://h/d"}, True, "no broker given, .* set KAFKA_BOOTSTRAP_SERVERS\\)"),
        ({"KAFKA_BOOTSTRAP_SERVERS": "k:1"}, True, "no database given, .* set DATABASE_URL\\)"),
        ({}, False, "no database given, .* set DATABASE_URL\\)"),
    ],
)
def test_only_what_is_missing_is_asked_for(
    tmp_path: Path, environ: dict[str, str], broker: bool, says: str
) -> None:
    (tmp_path / "schemas").mkdir()
    with pytest.raises(UsageError) as raised:
        Config.load(tmp_path, environ=environ, broker=broker)
    assert re.search(says, str(raised.value), re.DOTALL)


def test_where_no_broker_is_needed_none_is_asked_for(tmp_path: Path) -> None:
    config = Config.load(tmp_path, environ={"DATABASE_URL": "postgresql://h/d"}, broker=False)
    assert (config.bootstrap_servers, config.database_url) == ("", "postgresql://h/d")
    assert Config.load(tmp_path, environ=ENVIRON, broker=False).bootstrap_servers == "env:9092"


@pytest.mark.parametrize(
    ("environ", "broker", "used"),
    [
        ({}, True, "Kafka own:9092, PostgreSQL own:5433/shop"),
        ({}, False, "PostgreSQL own:5433/shop"),
        ({"DATABASE_URL": "postgresql://h/d"}, True, "Kafka own:9092"),
        ({"KAFKA_BOOTSTRAP_SERVERS": "k:1"}, True, "PostgreSQL own:5433/shop"),
        ({"DATABASE_URL": "postgresql://h/d"}, False, None),
    ],
)
def test_of_the_running_stack_only_what_is_used_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    environ: dict[str, str],
    broker: bool,
    used: str | None,
) -> None:
    own = stack.Addresses("own:9092", "postgresql://me:geheim@own:5433/shop")
    monkeypatch.setattr(stack, "running", lambda _: own)
    config = Config.load(tmp_path, environ=environ, broker=broker)
    assert config.database_url == environ.get("DATABASE_URL", own.database_url)
    kafka = own.bootstrap_servers if broker else ""
    assert config.bootstrap_servers == environ.get("KAFKA_BOOTSTRAP_SERVERS", kafka)
    assert capsys.readouterr().err == (f"using this project's stack: {used}\n" if used else "")


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://me:geheim@h/d\n")
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "k:1", "DATABASE_URL_FILE": str(tmp_path / "url")}
    assert Config.load(tmp_path, environ=environ).database_url == "postgresql://me:geheim@h/d"


def test_a_config_never_shows_a_password(tmp_path: Path) -> None:
    environ = {**ENVIRON, "STREAM_KAFKA_SASL_PASSWORD": "geheim", "STREAM_SMTP_URL": "smtp://me:geheim@h"}
    config = Config.load(tmp_path, environ=environ)
    assert config.kafka == {"sasl.password": "geheim"}
    assert "geheim" not in repr(config)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:geheim@db.example:5433/shop?sslmode=require", "db.example:5433/shop"),
        ("postgresql://me:geheim@db/shop", "db:5432/shop"),
        ("host=db port=5433 dbname=shop user=me password=geheim", "db:5433/shop"),
        ("postgresql://me:geheim@db:notaport/shop", "db:?/shop"),
    ],
)
def test_an_address_is_shown_without_user_and_password(url: str, shown: str) -> None:
    assert shown_address(url) == shown


@pytest.mark.parametrize("setting", ["plugin.library.paths", "sasl.kerberos.kinit.cmd", "enable.auto.commit"])
def test_a_kafka_setting_that_is_not_allowed_is_named(tmp_path: Path, setting: str) -> None:
    with pytest.raises(UsageError, match=setting):
        Config.load(tmp_path, environ=ENVIRON, kafka={setting: "x"})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("bootstrap = 1", "unknown bootstrap; known are"),
        ("prefix = 1", "prefix: expected text, got int"),
        ("kafka = 1", "must be a table"),
        ("= broken", "stream.toml"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "stream.toml").write_text(content)
    with pytest.raises(UsageError, match=says):
        Config.load(tmp_path, environ=ENVIRON)


def test_another_scheme_than_postgresql_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mysql"):
        Config.load(tmp_path, environ={**ENVIRON, "DATABASE_URL": "mysql://me:geheim@h/d"})


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("8000", ("127.0.0.1", 8000)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:8000", ("0.0.0.0", 8000)),
        ("[::]:8000", ("::", 8000)),
        (":8000", ("127.0.0.1", 8000)),
    ],
)
def test_the_metrics_port_is_on_loopback_unless_a_host_is_given(
    tmp_path: Path, given: str, address: tuple[str, int]
) -> None:
    assert Config.load(tmp_path, environ=ENVIRON).metrics is None
    assert Config.load(tmp_path, metrics_port=given, environ=ENVIRON).metrics == address
    assert Config.load(tmp_path, environ={**ENVIRON, "STREAM_METRICS_PORT": given}).metrics == address
    (tmp_path / "stream.toml").write_text(f'metrics_port = "{given}"\n')
    assert Config.load(tmp_path, environ=ENVIRON).metrics == address
    assert Config.load(tmp_path, metrics_port="1", environ=ENVIRON).metrics == ("127.0.0.1", 1)


@pytest.mark.parametrize("given", ["http", "8000:", "65536", "-1", "1.5", "\u0663", "host:"])
def test_a_metrics_port_that_is_none_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(UsageError, match="metrics port: expected PORT or HOST:PORT, got"):
        Config.load(tmp_path, metrics_port=given, environ=ENVIRON)


def test_a_folder_that_is_no_project_is_told_as_that(tmp_path: Path) -> None:
    for folder, why in ((tmp_path / "shp", "no such folder"), (tmp_path, "no folder schemas/")):
        with pytest.raises(NoProject, match=f"{folder} is no project: .*{why}"):
            Config.load(folder, environ={})
    assert Config.load(tmp_path, environ={}, broker=False, database=False).bootstrap_servers == ""


def test_a_folder_that_cannot_be_looked_at_is_told_as_that(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a: File name too long"):
        Config.load(tmp_path / ("a" * 300), environ=ENVIRON)


def test_a_command_that_says_itself_what_is_missing_gets_no_address(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    config = Config.load(tmp_path, environ={}, absent_ok=True)
    assert (config.bootstrap_servers, config.database_url) == ("", "")


def test_stack_tells_it_as_any_command_does() -> None:
    result = CliRunner().invoke(main, ["stack", "status", "--project", "a" * 300])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "a: File name too long" in result.stderr
