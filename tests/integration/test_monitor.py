"""The port of a process: what its metrics say of a real run, and whether it is alive and ready."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from stream import ConsumerGroup, Context, Event, PermanentError, TransientError, app, logs
from stream.cli import dev
from stream.config import Config, RetrySettings
from stream.monitor import Monitor
from stream.project import Project
from stream.relay import Relay
from stream.signals import METRICS
from tests.support.groups import Member, publish
from tests.support.processes import run
from tests.support.scrapes import Scrape, get, health, scrape
from tests.support.topics import create_topic
from tests.support.truth import Truth
from tests.support.waiting import until

pytestmark = pytest.mark.long

ANY_PORT = ("127.0.0.1", 0)


@pytest.fixture
def project(small: Project) -> Project:
    return small


@pytest.fixture
def things(config: Config) -> Config:
    """A broker with the topics, and times a fiftieth of the real ones."""
    for topic in ("things", "testers.retry", "testers.dlq"):
        create_topic(config, topic, 4)
    return replace(config, retries=RetrySettings().scaled(0.02))


@pytest.fixture
def shown(small: Project, things: Config) -> Iterator[Callable[..., tuple[Member, str]]]:
    """Starts a member of group testers, with the address of its port."""
    made: list[tuple[Member, Monitor]] = []

    def start(handler: Any, **options: Any) -> tuple[Member, str]:
        group = ConsumerGroup("testers", topics=["things"], start="beginning", **options)
        group.on("Happened")(handler)
        member = Member(group, small, things)
        monitor = Monitor(things, ANY_PORT, groups=[member.processor], read_every_s=0.2)
        made.append((member, monitor))
        return member, monitor.start()

    yield start
    for member, monitor in made:
        monitor.close()
        member.processor.stop(1.0)
        until(lambda member=member: not member.running)


def handle(event: Event, ctx: Context) -> None:
    n = event.data["n"]
    if n == 7:
        raise PermanentError("never")
    if n == 8 and ctx.attempt == 1:
        raise TransientError("not yet")
    if n == 9:
        ctx.skip("nothing to do")


def shows(base: str, name: str, value: float, **labels: str) -> Scrape:
    """The first scrape that shows this value."""
    last: list[Scrape] = []

    def as_wanted() -> bool:
        last.append(scrape(base))
        return last[-1].value(name, **labels) == value

    until(as_wanted, 30, lambda: f"{name}{labels} = {value}, is {last[-1].value(name, **labels)}")
    return last[-1]


@pytest.mark.parametrize("batch", [1, 50])
def test_what_became_of_events_is_counted_as_the_database_has_it(shown, small, things, conn, batch) -> None:
    publish(things, small, [(f"k{n}", n) for n in range(20)])
    _, base = shown(handle, batch=batch)
    expected = {"ok": 18, "skipped": 1, "duplicate": 0, "retry": 1, "dlq": 1}
    for outcome, count in expected.items():
        found = shows(base, "stream_messages_processed_total", count, group="testers", outcome=outcome)
    assert found.value("stream_dlq_messages_total", error_class="stream.errors.PermanentError") == 1
    durations = found.value("stream_process_duration_seconds_count", type="Happened")
    assert durations is not None and durations >= 21  # each try
    assert found.value("stream_end_to_end_latency_seconds_count", topic="things") == 18
    assert 0 < (found.value("stream_end_to_end_latency_seconds_sum") or 0) < 18 * 60
    assert found.value("stream_workers_limit") == (8 if batch == 1 else 4)
    shows(base, "stream_dlq_depth_records", 1, group="testers")
    [(died_at,)] = conn.execute("select extract(epoch from died_at)::float8 from stream.dead_letter")
    assert scrape(base).value("stream_dlq_oldest_timestamp_seconds") == pytest.approx(died_at, abs=0.001)


def test_depth_and_age_are_those_of_the_first_unfinished_record(shown, small, things) -> None:
    go_on = threading.Event()

    def wait(event: Event, ctx: Context) -> None:
        if event.key == "slow":
            go_on.wait(60)

    _, base = shown(wait)
    until(lambda: scrape(base).value("stream_assigned_partitions") == 8)  # and those of the retry topic
    before = time.time()
    publish(things, small, [("slow", n) for n in range(5)])
    found = shows(base, "stream_consumer_lag_records", 5, group="testers", topic="things")
    assert found.value("stream_workers_active", group="testers") == 1
    ages = [
        value
        for (name, labels), value in found.samples.items()
        if name == "stream_oldest_unprocessed_timestamp_seconds" and not math.isnan(value)
    ]
    assert len(ages) == 1
    assert before - 2 < ages[0] < time.time()
    go_on.set()
    found = shows(base, "stream_consumer_lag_records", 0)
    assert all(
        math.isnan(value)
        for (name, _), value in found.samples.items()
        if name == "stream_oldest_unprocessed_timestamp_seconds"
    )


def test_what_is_parked_and_what_stalls_is_shown(shown, small, things, conn, capsys) -> None:
    logs.configure(format="json")
    go_on = threading.Event()

    def fail(event: Event, ctx: Context) -> None:
        if event.key == "bad":
            raise TransientError("not here", retry_after=60)
        go_on.wait(30)

    member, base = shown(fail, timeout=8.0)
    publish(things, small, [("bad", 1), ("bad", 2), ("slow", 1)])
    found = shows(base, "stream_retry_pending_records", 2)
    assert found.value("stream_parked_keys", state="waiting") == 1
    assert found.value("stream_parked_keys", state="held") == 0
    [(since,)] = conn.execute("select extract(epoch from min(first_failed_at))::float8 from stream.parked")
    assert found.value("stream_retry_oldest_timestamp_seconds") == pytest.approx(since, abs=0.001)
    assert found.value("stream_handlers_stalled") == 0
    shows(base, "stream_handlers_stalled", 1, group="testers")
    logged: list[str] = []

    def said() -> list[str]:
        logged.extend(capsys.readouterr().err.splitlines())
        return [line for line in logged if '"handler.stalled"' in line]

    until(said)
    go_on.set()
    stalled = json.loads(said()[0])
    assert (stalled["group"], stalled["topic"], stalled["key"], stalled["attempt"]) == (
        "testers",
        "things",
        "slow",
        1,
    )
    assert stalled["event_id"] and {"partition", "offset"} <= stalled.keys()
    assert "go_on.wait" in stalled["stack"]
    shows(base, "stream_handlers_stalled", 0)
    member.end()  # while the log is still read


def test_a_held_group_is_alive_not_ready_and_says_why(shown, small, things, conn) -> None:
    _, base = shown(handle)
    until(lambda: health(base, "/readyz")[0] == 200)
    conn.execute(
        "update stream.group_state set halted_at = clock_timestamp(), halted_reason = 'ten died',"
        " probe_at = clock_timestamp() + interval '1 hour'"
    )
    conn.commit()
    until(lambda: health(base, "/readyz")[0] == 503)
    reason = "group testers: halted: ten died -> stream groups resume testers"
    assert health(base, "/readyz") == (503, {"ok": False, "reasons": [reason]})
    assert health(base, "/livez") == (200, {"ok": True, "reasons": []})
    assert scrape(base).value("stream_group_held", hold="halted") == 1
    conn.execute(
        "update stream.group_state set halted_at = null, paused_until = 'infinity', paused_reason = 'stock'"
    )
    conn.commit()
    until(lambda: health(base, "/readyz")[0] == 200)
    until(lambda: "paused" in str(health(base, "/readyz")[1]["reasons"]))
    assert scrape(base).value("stream_group_held", hold="halted") == 0
    assert scrape(base).value("stream_group_held", hold="paused") == 1


@pytest.mark.parametrize("of", ["a group", "a relay"])
def test_every_metric_of_the_list_is_shown_by_whom_it_is_about(
    shown, small, things, relay, truth, of
) -> None:
    publish(things, small, [("k", 7)])
    if of == "a group":
        _, base = shown(handle)
        shows(base, "stream_dlq_depth_records", 1)
        shows(base, "stream_consumer_lag_records", 0)
        names = scrape(base).names
    else:
        monitor = Monitor(things, ANY_PORT, relay=relay, read_every_s=0.2)
        base = monitor.start()
        shows(base, "stream_outbox_pending_rows", 0)
        names = scrape(base).names
        monitor.close()
    about_the_relay = {name for name in METRICS if name.startswith(("stream_outbox_", "stream_topic_"))}
    about_any = {"stream_build_info", "stream_dependency_up"}
    wanted = about_any | (METRICS.keys() - about_the_relay if of == "a group" else about_the_relay)
    shown_names = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in names}
    assert {name for name in shown_names if name.startswith("stream_")} == wanted
    assert "process_resident_memory_bytes" in names


def test_a_relay_shows_what_it_published_and_what_waits(relay: Relay, truth: Truth, conn) -> None:
    monitor = Monitor(truth.config, ANY_PORT, relay=relay, read_every_s=0.2)
    base = monitor.start()
    try:
        truth.commit("a", "b")
        found = shows(base, "stream_outbox_pending_rows", 2)
        [(written,)] = conn.execute("select extract(epoch from min(created_at))::float8 from stream.outbox")
        assert found.value("stream_outbox_oldest_timestamp_seconds") == pytest.approx(written, abs=0.5)
        assert found.value("stream_outbox_published_total") == 0
        conn.execute("""select stream.append('Happened', 'bad', '{"n": 1.5}')""")
        conn.commit()
        assert health(base, "/readyz")[0] == 503  # it has not begun
        relay.run_until_empty()
        found = shows(base, "stream_outbox_pending_rows", 0)
        assert found.value("stream_outbox_published_total", topic="things", outcome="ok") == 2
        assert found.value("stream_outbox_published_total", topic="things", outcome="rejected") == 1
        assert found.value("stream_outbox_rejected_rows") == 1
        assert math.isnan(found.value("stream_outbox_oldest_timestamp_seconds") or 0)
    finally:
        monitor.close()


def test_it_says_what_there_is_and_listens_on_loopback_alone(shown, things) -> None:
    _, base = shown(handle)
    assert base.startswith("http://127.0.0.1:")
    assert get(f"{base}/metric") == (404, "there are /metrics, /livez, /readyz\n")
    with urllib.request.urlopen(urllib.request.Request(f"{base}/livez?verbose", method="HEAD")) as answer:
        assert (answer.status, answer.read()) == (200, b"")


def test_a_port_that_is_taken_ends_the_command_with_2_and_what_to_type(
    small: Project, things: Config, environment: dict[str, str]
) -> None:
    app.migrate(things, small)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = run("relay", "--metrics-port", port, env=environment, cwd=small.root)
    assert (ended.wait(), ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[-2:] == [
        f"Error: metrics port: 127.0.0.1:{port} cannot be used: Address already in use",
        "-> stream relay --metrics-port 0   (any free port)",
    ]


def test_the_parts_of_dev_take_no_port_from_each_other(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAM_METRICS_PORT", raising=False)
    assert dev._environment(replace(config, metrics=("0.0.0.0", 8000)))["STREAM_METRICS_PORT"] == "0"
    assert "STREAM_METRICS_PORT" not in dev._environment(config)


def test_a_client_that_says_nothing_keeps_nobody_waiting(shown) -> None:
    _, base = shown(handle)
    host, port = base.removeprefix("http://").split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(20)]
    begun = time.monotonic()
    assert health(base, "/livez")[0] == 200
    assert time.monotonic() - begun < 4
    for connection in silent:
        connection.close()
