"""When a process lives, and when it is ready."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream.vitals import MOST_SHOWN, SILENT_S, STUCK_S, GroupSigns, RelaySigns, alive, ready

WELL = GroupSigns(
    "email",
    round_s=0.1,
    still_s=0.1,
    joined=True,
    stopping=False,
    waiting=0,
    active=0,
    limit=8,
    stalled=0,
    timeout=60.0,
)
RELAY = RelaySigns(round_s=0.0, connected=True, stopping=False, topics=2)
DOWN = {"broker": "Kafka at localhost:9 does not answer"}


def test_a_process_lives_as_long_as_every_loop_goes_round() -> None:
    assert alive([WELL, RELAY]).ok
    silent = alive([WELL, replace(RELAY, round_s=SILENT_S + 1)])
    assert not silent.ok
    assert silent.reasons == ["relay: its loop has not gone round for 301 s"]


def test_what_keeps_a_process_from_being_ready_is_no_reason_to_end_it() -> None:
    halted = replace(WELL, hold="halted", reason="10 events died", joined=False, still_s=1e6, waiting=3)
    assert alive([halted, replace(RELAY, connected=False)]).ok


def test_idle_is_ready_however_long() -> None:
    assert ready([replace(WELL, still_s=1e6), RELAY], {}, {"email": 0}).ok


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"joined": False}, "it has not joined yet"),
        ({"stopping": True}, "it is stopping"),
        ({"hold": "halted", "reason": "r"}, "halted: r -> stream groups resume email"),
        ({"hold": "breaker open", "reason": "r"}, "breaker open: r -> stream groups resume email"),
        (
            {"waiting": 7, "still_s": STUCK_S + 61},
            "7 records wait, and nothing was finished for 121 s -> stream groups describe email",
        ),
    ],
)
def test_a_group_that_makes_no_progress_is_not_ready_and_says_why(
    changed: dict[str, object], said: str
) -> None:
    answer = ready([replace(WELL, **changed)], {}, {})  # type: ignore[arg-type]  # a table of cases
    assert (answer.ok, answer.reasons) == (False, [f"group email: {said}"])


def test_a_handler_may_take_its_time() -> None:
    assert ready([replace(WELL, waiting=7, still_s=STUCK_S + 59)], {}, {}).ok


def test_records_that_never_come_count_as_something_to_do() -> None:
    assert not ready([replace(WELL, still_s=1e6)], {}, {"email": 5}).ok


def test_paused_is_what_somebody_wanted_and_is_said() -> None:
    answer = ready(
        [replace(WELL, hold="paused", reason="inventory", waiting=9, still_s=1e6)], {}, {"email": 9}
    )
    assert (answer.ok, answer.reasons) == (True, ["group email: paused: inventory"])


def test_a_dependency_that_is_down_keeps_everybody_from_being_ready() -> None:
    answer = ready([WELL], DOWN, {})
    assert (answer.ok, answer.reasons) == (False, ["broker: Kafka at localhost:9 does not answer"])


def test_a_sick_topic_beside_one_that_is_well_is_said_and_no_more() -> None:
    answer = ready([replace(RELAY, sick={"orders": "not there"})], {}, {})
    assert (answer.ok, answer.reasons) == (True, ["relay: topic orders cannot be written: not there"])
    assert not ready([replace(RELAY, topics=1, sick={"orders": "not there"})], {}, {}).ok
    assert not ready([replace(RELAY, connected=False)], {}, {}).ok


def test_a_reason_is_short() -> None:
    answer = ready([replace(WELL, hold="halted", reason="x" * 10_000)], {}, {})
    assert len(answer.reasons[0]) == MOST_SHOWN
