"""deploy/alerts.yml on a real run: eight groups and a relay, first all well, then each in a trouble of its own. Their
ports are scraped, and Prometheus' own tool says which alerts that would have fired."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from stream import ConsumerGroup, Context, Event, Outbox, PermanentError, StopGroup
from stream.config import Config, RetrySettings
from stream.monitor import Monitor
from stream.relay import Relay
from tests.support.effects import migrate
from tests.support.groups import Member
from tests.support.promtool import promtool
from tests.support.rules import SCALE, Recorder, check
from tests.support.small import make_project
from tests.support.topics import create_topic
from tests.support.truth import append_bytes
from tests.support.waiting import until

pytestmark = pytest.mark.soak

RULES = Path(__file__).resolve().parents[2] / "deploy" / "alerts.yml"
ANY_PORT = ("127.0.0.1", 0)
HANDLERS = ("well", "paused", "dying", "failing", "stalling", "stuck", "halted", "waiting")
EXPECTED = {
    "dying": ["StreamDeadLettersGrowing", "StreamFailureRatioHigh"],
    "failing": ["StreamFailureRatioHigh"],
    "stalling": ["StreamHandlerStalled", "StreamOldestEventTooOld"],
    "stuck": ["StreamConsumerStalled", "StreamOldestEventTooOld"],
    "halted": ["StreamConsumerStalled", "StreamGroupHeld", "StreamOldestEventTooOld"],
    "waiting": ["StreamParkedTooOld"],
}
CALM_MINUTES, TROUBLE_MINUTES, ALONE_MINUTES = 12, 70, 8  # of the rules


def one_in_four(event: Event) -> bool:
    return (int((event.key or "")[1:]) + event.data["n"]) % 4 == 0


class Troubles:
    """What the handlers do once `begun` is set; `over` lets go whoever is stuck."""

    def __init__(self) -> None:
        self.begun, self.over = threading.Event(), threading.Event()
        self._stalled = threading.Event()

    def handler(self, name: str) -> Callable[[Event, Context], None]:
        trouble: Callable[[Event, Context], None] = getattr(self, name)

        def handle(event: Event, ctx: Context) -> None:
            if self.begun.is_set():
                trouble(event, ctx)

        return handle

    def well(self, event: Event, ctx: Context) -> None:
        pass

    paused = well

    def dying(self, event: Event, ctx: Context) -> None:
        if one_in_four(event):
            raise PermanentError("never")

    def failing(self, event: Event, ctx: Context) -> None:
        if one_in_four(event) and ctx.attempt == 1:
            raise ValueError("not at first")

    def stalling(self, event: Event, ctx: Context) -> None:
        if not self._stalled.is_set():
            self._stalled.set()
            self.over.wait(ctx.deadline + 3 - time.monotonic())

    def stuck(self, event: Event, ctx: Context) -> None:
        self.over.wait(300)

    def halted(self, event: Event, ctx: Context) -> None:
        raise StopGroup("not today")

    def waiting(self, event: Event, ctx: Context) -> None:
        if event.key == "k0":
            raise PermanentError("a person is to say what becomes of it")


@pytest.mark.timeout(240)
def test_alerts_fire_on_the_troubles_they_are_for_and_on_no_others(
    tmp_path: Path, config: Config, environment: dict[str, str]
) -> None:
    config = replace(config, retries=RetrySettings().scaled(1 / SCALE))
    promtool()  # before the minute that all of it takes
    project = make_project(tmp_path / "shop")
    migrate(project, environment)
    troubles = Troubles()
    members = []
    for name in HANDLERS:
        for topic in (f"{name}.retry", f"{name}.dlq"):
            create_topic(config, topic, 1)
        group = ConsumerGroup(
            name,
            topics=["things"],
            start="beginning",
            batch=1 if name == "stalling" else 20,
            timeout=6.0 if name == "stalling" else 600.0,
            on_dead="hold" if name == "waiting" else "release",
        )
        group.on("Happened")(troubles.handler(name))
        members.append(Member(group, project, config))
    relay = Relay(config, project)
    relaying = threading.Thread(target=relay.run, daemon=True)
    relaying.start()
    monitors = {
        "groups": Monitor(config, ANY_PORT, groups=[m.processor for m in members], read_every_s=0.5),
        "relay": Monitor(config, ANY_PORT, relay=relay, read_every_s=0.2),
    }
    outbox, stop = Outbox(project), threading.Event()

    def shop() -> None:
        with psycopg.connect(config.database_url, autocommit=True) as conn:
            n = 0
            while not stop.wait(0.8):  # in between, the outbox is empty
                events = [{"type": "Happened", "key": f"k{k}", "data": {"n": n}} for k in range(8)]
                outbox.append_many(conn, events)
                n += 1

    shopping = threading.Thread(target=shop, daemon=True)
    shopping.start()
    try:
        until(lambda: all(m.processor.counts["done"] > 20 for m in members), 60)
        with Recorder({name: monitor.start() for name, monitor in monitors.items()}) as recorder:
            until(lambda: recorder.now() > CALM_MINUTES * 60)
            calm = recorder.now()
            troubles.begun.set()
            with psycopg.connect(config.database_url, autocommit=True) as conn:
                append_bytes(conn, "nowhere", b"k", b"1")
                conn.execute(
                    "update stream.group_state set paused_until = 'infinity', paused_reason = 'wanted'"
                    " where consumer_group = 'paused'"
                )
            until(lambda: recorder.now() > calm + TROUBLE_MINUTES * 60, TROUBLE_MINUTES * 60 / SCALE + 30)
            recorder.forget("relay")
            until(lambda: recorder.now() > calm + (TROUBLE_MINUTES + ALONE_MINUTES) * 60)
            end = recorder.now()
    finally:
        stop.set()
        troubles.over.set()
        shopping.join(10)
        for monitor in monitors.values():
            monitor.close()
        relay.stop()
        relaying.join(30)
        for member in members:
            member.processor.stop(10.0)
        for member in members:
            until(lambda member=member: not member.running, 30)
    alerts = [f'{{alertname="{alert}",group="{name}"}}' for name in EXPECTED for alert in EXPECTED[name]]
    alerts += ['{alertname="StreamOutboxStuck"}', '{alertname="StreamNoRelay"}']
    told = {
        "eval_time": f"{int(end)}s",
        "alertname": "StreamGroupHeld",
        "exp_alerts": [
            {
                "exp_labels": {"group": "halted", "hold": "halted", "severity": "critical"},
                "exp_annotations": {
                    "summary": "Group halted: halted.",
                    "description": "Only one event is tried now and then; when the cause is mended the group goes on"
                    " by itself. -> stream groups describe halted",
                },
            }
        ],
    }
    check(RULES, recorder, tmp_path, {calm: [], end: alerts}, [told])
