"""Failing: what a group's workers need to say what becomes of a failed event, and what they raise where a try does not
count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stream.config import RetrySettings
from stream.groups import ConsumerGroup
from stream.health import Health
from stream.meters import GroupMeter
from stream.parking import Parking, Verdict
from stream.policy import FailurePolicy


class Uncounted(Exception):
    """The try does not count: as if it had not been made."""


class GroupHalted(Uncounted):
    """The group is halted: nobody may die now."""


class ProbeFailed(Uncounted):
    """A probe showed that trying does not help yet."""


@dataclass(frozen=True, slots=True)
class Failing:
    """What becomes of a group's failed events, for one worker. `may_postpone`: whether, beside
    so many more of the run, a first failure may be kept in memory. `meter` counts them, if there is one."""

    parking: Parking
    policy: FailurePolicy
    health: Health
    holds_dead: bool
    may_postpone: Callable[[int], bool] = lambda _: False
    meter: GroupMeter | None = None

    @classmethod
    def of(
        cls,
        group: ConsumerGroup,
        worker: str,
        health: Health,
        settings: RetrySettings,
        may_postpone: Callable[[int], bool],
        meter: GroupMeter,
    ) -> Failing:
        """As the group says. `health` and `meter` are those of all its workers in this process."""
        return cls(
            Parking(group.name, worker, on_dead=group.on_dead),
            FailurePolicy(group.attempts, group.give_up_after.total_seconds(), settings),
            health,
            holds_dead=group.on_dead == "hold",
            may_postpone=may_postpone,
            meter=meter,
        )

    def note(self, verdict: Verdict) -> None:
        """Count a try that failed, once what becomes of it holds."""
        if self.meter is None:
            return
        topic = verdict.work.record.topic
        if verdict.retry is None:
            self.meter.died(topic, verdict.failure.error_class)
        else:
            self.meter.failed(topic)
