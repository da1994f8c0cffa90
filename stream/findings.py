"""Findings: what the doctor found out, and what its checks say of it. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stream.app import Migration
from stream.checkup import Server, Tables
from stream.groups import ConsumerGroup
from stream.kafka.survey import Survey
from stream.topics import Topic

Status = Literal["success", "warning", "failure", "halted"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check says. `halted`: it could not run, as what it needs was not found. `fix`: what to type next."""

    check: str
    status: Status
    message: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Why facts are missing; the check named `check` tells it, and all others that need them are halted."""

    check: str
    message: str
    fix: str | None


@dataclass(frozen=True, slots=True)
class SchemaFiles:
    """`problems`: a line each; `unlocked`: files that have no line in the lock."""

    versions: int
    problems: Sequence[str]
    unlocked: Sequence[str]


@dataclass(frozen=True, slots=True)
class Declared:
    """What the project declares: all topics, those of retries and dead letters too, and its groups."""

    topics: Mapping[str, Topic]
    groups: Mapping[str, ConsumerGroup]


@dataclass(frozen=True, slots=True)
class Facts:
    """All that was found, or why it was not. `prefix` stands before names on the broker."""

    schemas: SchemaFiles | Problem
    declared: Declared | Problem
    broker: Survey | Problem
    server: Server | Problem
    migration: Migration | Problem
    tables: Tables | Problem
    prefix: str = ""


def success(message: str) -> Finding:
    return Finding("", "success", message)


def warning(message: str, fix: str) -> Finding:
    return Finding("", "warning", message, fix)


def failure(message: str, fix: str | None) -> Finding:
    return Finding("", "failure", message, fix)
