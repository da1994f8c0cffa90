"""deploy/ says the same as the code: commands that it understands, its port, its paths, and time enough to stop."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from stream.cli import main
from stream.config import Config
from stream.discovery import discover
from stream.errors import OutOfMemory, Refused, Unreachable, UsageError
from stream.monitor import PATHS
from stream.processor import STOP_S
from stream.project import Project
from stream.relay import DRAIN_S
from stream.watchdog import EXIT_CODE

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DEPLOYMENT: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes.yml").read_text(encoding="utf-8"))
POD: dict[str, Any] = DEPLOYMENT["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]  # one process a container, one container a pod
PROBES = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
UNITS = ["stream-relay.service", "stream-consume@.service"]
NEEDED = {"KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"}


def unit(name: str) -> dict[str, list[str]]:
    """The settings of a unit, each with all its values."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / name).read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def parsed(arguments: list[str]) -> click.Context:
    """The context of a command line; fails as the program would."""
    command, *rest = arguments
    with click.Context(main) as parent:
        found = main.get_command(parent, command)
        assert found is not None
        return found.make_context(command, rest, parent=parent)


def address(given: str) -> tuple[str, int]:
    environ = dict.fromkeys(NEEDED, "postgresql://h/d")
    found = Config.load(ROOT, metrics_port=given, environ=environ, quiet=True).metrics
    assert found is not None
    return found


def test_the_deployment_runs_a_group_that_there_is_and_no_more_processes_than_it_has_partitions() -> None:
    [name] = parsed(CONTAINER["args"]).params["names"]
    project = Project(ROOT)
    topics = discover(project)[name].topics
    partitions = [project.topics.topics[topic].partitions for topic in topics]
    assert DEPLOYMENT["spec"]["replicas"] <= max(partitions)
    assert "command" not in CONTAINER  # the image's own: one process, and it gets the signal


def test_the_port_is_one_and_open_to_the_kubelet() -> None:
    [port] = CONTAINER["ports"]
    host, number = address(parsed(CONTAINER["args"]).params["metrics_port"])
    assert (host, number) == ("0.0.0.0", port["containerPort"])
    annotations = DEPLOYMENT["spec"]["template"]["metadata"]["annotations"]
    assert int(annotations["prometheus.io/port"]) == number
    assert annotations["prometheus.io/path"] in PATHS
    assert {CONTAINER[probe]["httpGet"]["port"] for probe in PROBES} == {port["name"]}


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_asks_what_the_process_answers(probe: str) -> None:
    assert CONTAINER[probe]["httpGet"]["path"] == PROBES[probe]
    assert PROBES[probe] in PATHS


def test_the_selector_finds_its_pods() -> None:
    assert (
        DEPLOYMENT["spec"]["selector"]["matchLabels"] == DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    )


def test_a_pod_may_do_no_more_than_it_must() -> None:
    assert POD["securityContext"]["runAsNonRoot"] and POD["securityContext"]["runAsUser"] > 0
    assert CONTAINER["securityContext"]["allowPrivilegeEscalation"] is False
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"] is True


def test_a_stop_has_the_time_to_drain() -> None:
    longest = max(STOP_S, DRAIN_S) + 1
    assert POD["terminationGracePeriodSeconds"] > longest
    for name in UNITS:
        [seconds] = unit(name)["TimeoutStopSec"]
        assert int(seconds) > longest


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_runs_a_command_that_the_program_understands(name: str) -> None:
    [line] = unit(name)["ExecStart"]
    program, *arguments = shlex.split(line.replace("%i", "invoicing"))
    [folder] = unit(name)["WorkingDirectory"]
    assert program == f"{folder}/.venv/bin/stream"  # as `make install` makes it
    context = parsed(arguments)
    if context.info_name == "relay":
        assert address(context.params["metrics_port"])[0] == "127.0.0.1"
    else:
        assert context.params["names"] == ("invoicing",)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_again_what_can_go_on_and_nothing_that_needs_a_person(name: str) -> None:
    settings = unit(name)
    assert settings["Restart"] == ["on-failure"]
    assert settings["StartLimitIntervalSec"] == ["0"]  # an outage may be long
    prevented = {int(code) for code in settings["RestartPreventExitStatus"][0].split()}
    assert prevented == {UsageError.exit_code, Refused.exit_code}
    assert not prevented & {OutOfMemory.exit_code, EXIT_CODE, Unreachable.exit_code, 1}


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_sends_the_signal_to_the_process_and_keeps_its_secrets_in_a_file(name: str) -> None:
    settings = unit(name)
    assert settings["KillMode"] == ["mixed"]
    assert "KillSignal" not in settings  # SIGTERM
    assert settings["EnvironmentFile"][0] == "/etc/stream/stream.env"
    assert "Environment" not in settings
    head = (DEPLOY / "stream-relay.service").read_text(encoding="utf-8").splitlines()[0]
    assert all(variable in head for variable in NEEDED)
