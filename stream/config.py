"""Where everything is: one frozen Config from flags > environment > stream.toml > the running embedded stack."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from urllib.parse import urlsplit

from stream.errors import NoProject, UsageError

FILE = "stream.toml"
BROKER, DATABASE = "KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"
FILE_KEYS = frozenset({"bootstrap_servers", "database_url", "prefix", "smtp_url", "metrics_port", "kafka"})
LOOPBACK = "127.0.0.1"

Address = tuple[str, int]  # host and port

# librdkafka settings a user may pass: transport security and nothing that loads code or runs a shell
# (`plugin.library.paths` loads shared objects, `sasl.kerberos.kinit.cmd` is a shell command).
KAFKA_SETTINGS = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "client.rack",
        "broker.address.family",
    }
)
SECRETS = ("sasl.password", "ssl.key.password")


@dataclass(frozen=True)
class RetrySettings:
    """Every number of failing, in one place. Seconds where the name ends with `_s`."""

    first_s: float = 1.0
    soon_s: float = 2.0  # a first failure that is tried again within this time waits for it in memory
    most_s: float = 300.0
    budget_ratio: float = 0.1  # retries to successes
    budget_floor: float = 5.0  # retries a second that are always allowed
    budget_saved_s: float = 60.0  # of the floor, saved up while nothing failed
    breaker_failures: int = 5
    breaker_keys: int = 3
    breaker_silence_s: float = 60.0  # all failed for so long, however few
    probe_first_s: float = 1.0
    probe_most_s: float = 30.0
    ramp_s: float = (
        1.0  # after an outage: `concurrency` starts in the first such time, twice as many in each next
    )
    halt_failures: int = 10
    halt_window: int = 100
    halt_ratio: float = 0.5
    halt_probe_s: float = 60.0
    nudge_first_s: float = (
        60.0  # a retry overdue for so long is called again, then after twice as long, and so on
    )
    nudge_most_s: float = 3600.0
    crashes: int = 3

    def scaled(self, factor: float) -> RetrySettings:
        """The same with every time multiplied: a 20-minute outage in a second."""
        times = {f.name: getattr(self, f.name) * factor for f in fields(self) if f.name.endswith("_s")}
        return replace(self, **times, budget_floor=self.budget_floor / factor)


@dataclass(frozen=True)
class Config:
    """Validated settings of one process. `prefix` stands before every topic, group and client id on Kafka.

    `bootstrap_servers`, `database_url`: empty where none is given to a command that needs none.

    `metrics`: where the process shows how it is; None: nowhere.

    `retries`: every number of failing; its times are multiplied by STREAM_TIME_SCALE, for trying things out.
    """

    project: Path
    bootstrap_servers: str = field(repr=False)
    database_url: str = field(repr=False)
    prefix: str = ""
    smtp_url: str | None = field(default=None, repr=False)
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    metrics: Address | None = None
    retries: RetrySettings = RetrySettings()

    @classmethod
    def load(
        cls,
        project: Path,
        *,
        bootstrap_servers: str | None = None,
        database_url: str | None = None,
        prefix: str | None = None,
        kafka: Mapping[str, str] | None = None,
        metrics_port: str | None = None,
        environ: Mapping[str, str] = os.environ,
        quiet: bool = False,
        broker: bool = True,
        database: bool = True,
        absent_ok: bool = False,
    ) -> Config:
        """Read the settings of `project`; raises UsageError naming what is missing or wrong, and where.

        `broker`, `database`: whether one is needed. `absent_ok`: they are left empty where no stack runs.
        """
        require_folder(project)
        project = project.resolve()
        file = _read_file(project / FILE)
        given: dict[str, object] = {
            BROKER: bootstrap_servers or environ.get(BROKER) or file.get("bootstrap_servers"),
            DATABASE: database_url or _secret(environ, DATABASE) or file.get("database_url"),
        }
        needed = {BROKER: broker, DATABASE: database}
        missing = [name for name, value in given.items() if not value and needed[name]]
        if missing:
            given |= _running_stack(project, missing, quiet=quiet, absent_ok=absent_ok)
        return cls(
            project=project,
            bootstrap_servers=_text("bootstrap_servers", given[BROKER] or ""),
            database_url=_checked_url(_text("database_url", given[DATABASE] or "")),
            prefix=_text("prefix", prefix or environ.get("STREAM_PREFIX") or file.get("prefix", "")),
            smtp_url=_optional("smtp_url", _secret(environ, "STREAM_SMTP_URL") or file.get("smtp_url")),
            kafka=_kafka_settings(file.get("kafka", {}), environ, kafka or {}),
            metrics=_address(metrics_port or environ.get("STREAM_METRICS_PORT") or file.get("metrics_port")),
            retries=RetrySettings().scaled(_scale(environ.get("STREAM_TIME_SCALE", "1"))),
        )


def require_folder(project: Path) -> None:
    """Raises NoProject where there is no such folder, UsageError where it cannot be looked at."""
    try:
        if not project.is_dir():
            raise NoProject(project)
    except OSError as error:  # a folder above it may not be entered, or its name is too long
        raise UsageError(f"{project}: {error.strerror}") from error


def not_given(server: str) -> str:
    """What is said where there is no address of the broker or the database."""
    return f"no {server} given, and no stack of this project is running"


def shown_address(url: str) -> str:
    """`host:port/database` of a database URL or conninfo: what may be shown; never user or password."""
    if "://" not in url:
        parts = dict(part.split("=", 1) for part in url.split() if "=" in part)
        host, port, name = parts.get("host", "localhost"), parts.get("port", "5432"), parts.get("dbname", "")
    else:
        split = urlsplit(url)
        try:
            host, port, name = split.hostname or "localhost", str(split.port or 5432), split.path.lstrip("/")
        except ValueError:
            host, port, name = split.hostname or "localhost", "?", split.path.lstrip("/")
    return f"{host}:{port}/{name}"


def _read_file(path: Path) -> dict[str, object]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{path}: {error}") from error
    unknown = set(content) - FILE_KEYS
    if unknown:
        raise UsageError(
            f"{path}: unknown {', '.join(sorted(unknown))}; known are {', '.join(sorted(FILE_KEYS))}"
        )
    return content


def _running_stack(project: Path, missing: Sequence[str], *, quiet: bool, absent_ok: bool) -> dict[str, str]:
    """The addresses for the variables that are missing, and no others."""
    from stream import stack

    addresses = stack.running(project)
    if addresses is None:
        if not (project / "schemas").is_dir():
            raise NoProject(project)
        if absent_ok:
            return {}
        what = " and ".join({BROKER: "broker", DATABASE: "database"}[name] for name in missing)
        raise UsageError(not_given(what), hint=f"stream stack up   (or set {' and '.join(missing)})")
    kafka, url = addresses.bootstrap_servers, addresses.database_url
    if not quiet:
        shown = {BROKER: f"Kafka {kafka}", DATABASE: f"PostgreSQL {shown_address(url)}"}
        print(f"using this project's stack: {', '.join(shown[name] for name in missing)}", file=sys.stderr)
    return {name: {BROKER: kafka, DATABASE: url}[name] for name in missing}


def _secret(environ: Mapping[str, str], name: str) -> str | None:
    """The variable's value, or the content of the file that `<name>_FILE` names."""
    if environ.get(name):
        return environ[name]
    path = environ.get(f"{name}_FILE")
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"{name}_FILE: {error}") from error


def _kafka_settings(file: object, environ: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(file, dict):
        raise UsageError(f"{FILE}: [kafka] must be a table, got {type(file).__name__}")
    settings = {str(name): str(value) for name, value in file.items()}
    for name in KAFKA_SETTINGS:
        variable = "STREAM_KAFKA_" + name.replace(".", "_").upper()
        value = _secret(environ, variable) if name in SECRETS else environ.get(variable)
        if value:
            settings[name] = value
    settings |= flags
    refused = set(settings) - KAFKA_SETTINGS
    if refused:
        raise UsageError(
            f"Kafka setting {', '.join(sorted(refused))} is not allowed;"
            f" allowed are {', '.join(sorted(KAFKA_SETTINGS))}"
        )
    return settings


def _scale(text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 1000:
        raise UsageError(f"STREAM_TIME_SCALE: expected a number above 0, got {text!r}")
    return scale


def _address(given: object) -> Address | None:
    """`[HOST:]PORT`, on the loopback address where no host is given; None where nothing is given."""
    if given is None:
        return None
    host, _, port = str(given).rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise UsageError(f"metrics port: expected PORT or HOST:PORT, got {str(given)!r:.80}")
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name}: expected text, got {type(value).__name__}")
    return value


def _optional(name: str, value: object) -> str | None:
    return None if value is None else _text(name, value)


def _checked_url(url: str) -> str:
    if "://" in url and not url.startswith(("postgresql://", "postgres://")):
        raise UsageError(f"DATABASE_URL: expected postgresql://..., got {urlsplit(url).scheme}://...")
    return url
