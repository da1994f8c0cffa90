"""docker-compose.yml says the same as the code: there is no engine to try it on, so it is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from stream.cli import main
from stream.config import Config
from stream.discovery import discover
from stream.project import Project
from stream.stack import jars, kafka, postgres, wheels

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CLUSTER = ["kafka-1", "kafka-2", "kafka-3"]
BROKERS = ["kafka", *CLUSTER]
OURS = [name for name, service in SERVICES.items() if "build" in service]

# What differs on three brokers from one.
CLUSTER_SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}
# Longer than the 25 s in which a stop drains.
GRACE_S = 26


def without_variables(text: str) -> str:
    """The value where no variable of the caller is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def environment(name: str) -> dict[str, str]:
    return {key: without_variables(str(value)) for key, value in SERVICES[name]["environment"].items()}


def properties(name: str) -> dict[str, str]:
    """The broker's settings, by the image's rule: KAFKA_A_B is a.b."""
    return {
        key.removeprefix("KAFKA_").lower().replace("_", "."): value
        for key, value in environment(name).items()
        if key.startswith("KAFKA_")
    }


def listeners(text: str) -> dict[str, str]:
    """Name -> address, of `listeners` and `advertised.listeners`."""
    return dict(one.split("://") for one in text.split(","))


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def test_it_has_broker_database_mail_relay_and_every_group_of_the_project() -> None:
    groups = discover(Project(ROOT))
    assert set(SERVICES) == {"postgres", "mailpit", "migrate", "relay", *BROKERS, *groups}
    for name in groups:
        assert SERVICES[name]["command"] == ["consume", "--group", name]


@pytest.mark.parametrize("name", OURS)
def test_each_command_is_one_that_the_program_understands(name: str) -> None:
    command, *arguments = SERVICES[name]["command"]
    with click.Context(main) as parent:
        found = main.get_command(parent, command)
        assert found is not None
        found.make_context(command, arguments, parent=parent)


@pytest.mark.parametrize("name", OURS)
def test_the_program_reads_its_addresses_from_the_variables_it_is_given(name: str) -> None:
    config = Config.load(ROOT, environ=environment(name), quiet=True)
    assert config.bootstrap_servers == listeners(properties("kafka")["advertised.listeners"])["PLAINTEXT"]
    database = environment("postgres")
    user, password = database["POSTGRES_USER"], database["POSTGRES_PASSWORD"]
    assert config.database_url == f"postgresql://{user}:{password}@postgres:5432/{database['POSTGRES_DB']}"
    assert config.smtp_url == "smtp://mailpit:1025"
    assert set(environment(name)) == {"KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL", "STREAM_SMTP_URL"}


@pytest.mark.parametrize("name", BROKERS)
def test_the_broker_has_the_version_and_the_settings_of_the_embedded_one(name: str) -> None:
    expected = {**kafka.SETTINGS, **(CLUSTER_SETTINGS if name in CLUSTER else {})}
    assert SERVICES[name]["image"] == f"apache/kafka:{jars.KAFKA_VERSION}"
    assert {key: properties(name).get(key) for key in expected} == expected


def test_the_database_has_the_version_and_the_limits_of_the_embedded_one() -> None:
    version = ".".join(wheels.postgres_version().split(".")[:2])
    assert SERVICES["postgres"]["image"] == f"postgres:{version}"
    assert SERVICES["postgres"]["command"][0] == "postgres"
    settings = dict(one.split("=") for one in SERVICES["postgres"]["command"] if "=" in one)
    assert settings == {
        name: postgres.SETTINGS[name] for name in ("max_connections", "max_locks_per_transaction")
    }


def test_the_cluster_is_three_brokers_that_know_each_other_and_start_only_when_asked_for() -> None:
    voters = "1@kafka-1:29093,2@kafka-2:29093,3@kafka-3:29093"
    assert [properties(name)["node.id"] for name in CLUSTER] == ["1", "2", "3"]
    assert {properties(name)["controller.quorum.voters"] for name in CLUSTER} == {voters}
    assert len({environment(name)["CLUSTER_ID"] for name in CLUSTER}) == 1
    assert {name for name, service in SERVICES.items() if "profiles" in service} == set(CLUSTER)
    assert all(SERVICES[name]["profiles"] == ["cluster"] for name in CLUSTER)


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_is_reached_from_the_host_and_from_the_other_containers(name: str) -> None:
    bound, told = (listeners(properties(name)[key]) for key in ("listeners", "advertised.listeners"))
    host, published, inside = SERVICES[name]["ports"][0].split(":")
    assert told == {"PLAINTEXT_HOST": f"localhost:{published}", "PLAINTEXT": f"{name}:19092"}
    assert bound["PLAINTEXT_HOST"] == f":{inside}"
    assert bound["PLAINTEXT"] == ":19092"
    assert bound["CONTROLLER"] == ":29093"
    assert host == "127.0.0.1"


def test_every_published_port_is_on_the_loopback_address_and_no_two_are_one() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    published = [port.split(":")[1] for port in ports]
    assert len(set(published)) == len(published)
    assert {str(kafka.PORT), str(postgres.PORT), "8025"} <= set(published)


@pytest.mark.parametrize("name", BROKERS)
def test_the_brokers_health_check_is_a_command_that_fails(name: str) -> None:
    # kafka-broker-api-versions.sh, which is often taken, prints the error and exits with 0.
    check = SERVICES[name]["healthcheck"]["test"]
    assert check[0] == "CMD-SHELL"
    assert check[1].startswith(f"/opt/kafka/bin/kafka-topics.sh --bootstrap-server {name}:19092 --list")


def test_the_databases_health_check_asks_for_its_own_user_and_database_over_tcp() -> None:
    database = environment("postgres")
    assert SERVICES["postgres"]["healthcheck"]["test"] == [
        "CMD-SHELL",
        f"pg_isready -h 127.0.0.1 -U {database['POSTGRES_USER']} -d {database['POSTGRES_DB']}",
    ]


def test_nothing_starts_before_what_it_needs_is_healthy() -> None:
    needs = {name: service.get("depends_on", {}) for name, service in SERVICES.items()}
    for name in ("postgres", *BROKERS):
        assert needs["migrate"][name]["condition"] == "service_healthy"
        assert needs["migrate"][name].get("required", True) == (name not in CLUSTER)
    for name in OURS:
        if name != "migrate":
            assert needs[name]["migrate"]["condition"] == "service_completed_successfully"
    assert needs["email"]["mailpit"]["condition"] == "service_healthy"
    for waited_for in needs.values():
        for name, how in waited_for.items():
            assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[name]


@pytest.mark.parametrize("name", [*OURS, *BROKERS, "postgres"])
def test_a_stop_has_the_time_to_drain(name: str) -> None:
    assert seconds(SERVICES[name]["stop_grace_period"]) >= GRACE_S


def test_every_service_but_the_one_that_ends_is_started_again() -> None:
    policies = {name: service.get("restart") for name, service in SERVICES.items()}
    assert policies.pop("migrate") == "no"
    assert set(policies.values()) == {"unless-stopped"}


def test_what_must_survive_is_on_a_volume() -> None:
    for name in ("postgres", *BROKERS):
        volume, _, path = SERVICES[name]["volumes"][0].partition(":")
        assert volume in COMPOSE["volumes"]
        if name in BROKERS:
            assert properties(name)["log.dirs"] == path


def test_the_image_holds_the_project_and_runs_the_program() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert lines[-1] == 'ENTRYPOINT ["stream"]'
    for folder in ("stream", "schemas", "consumers"):
        assert f"COPY {folder} ./{folder}" in lines
        assert f"!{folder}" in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith("USER ") and line != "USER root" for line in lines)
