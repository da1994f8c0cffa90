"""Checks: what the doctor says of what it found, one function each, and the table of them. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stream.app import Migration
from stream.checkup import Server, Tables
from stream.findings import Declared, Facts, Finding, Problem, SchemaFiles, failure, success, warning
from stream.kafka.admin import topic_config
from stream.kafka.survey import Survey
from stream.views import clock

CLOCKS_MAY_DIFFER_S = 2.0  # times that people compare stop agreeing
CLOCKS_MUST_NOT_DIFFER_S = 60.0
MOST_NAMED = 3

Findings = list[Finding]


def schemas(files: SchemaFiles) -> Findings:
    if files.problems:
        return [failure(problem, "stream schema check") for problem in files.problems]
    if files.unlocked:
        return [warning(f"not locked: {_some(files.unlocked)}", "stream schema check")]
    return [success(f"{_plural(files.versions, 'schema')}; every version reads its predecessors")]


def consumers(declared: Declared) -> Findings:
    return [success(f"groups: {', '.join(sorted(declared.groups)) or 'none'}")]


def broker(survey: Survey) -> Findings:
    return [success(f"cluster {survey.cluster_id}, {_plural(survey.brokers, 'broker')}")]


def database(server: Server) -> Findings:
    return [success(f"PostgreSQL {server.version}, database {server.database}, role {server.role}")]


def migrations(migration: Migration) -> Findings:
    if migration.empty:
        return [success("all are applied")]
    return [failure(f"not applied: {_some(migration.lines())}", "stream migrate")]


def topics(declared: Declared, survey: Survey) -> Findings:
    unseen = {name.removeprefix("topic ") for name in survey.denied} - survey.topics.keys()
    missing = [name for name in declared.topics if name not in survey.topics and name not in unseen]
    found = [failure(f"not there: {_some(missing)}", "stream migrate")] if missing else []
    found += [
        failure(f"{name} cannot be written: {topic.shortage}", "stream outbox status")
        for name, topic in survey.topics.items()
        if topic.shortage is not None
    ]
    return found or [success(f"all {len(declared.topics)} are there and can be written")]


def partitions(declared: Declared, survey: Survey) -> Findings:
    found = []
    for name, topic in survey.topics.items():
        wanted = declared.topics[name].partitions
        if topic.partitions > wanted:
            text = f"{name} has {topic.partitions}, topics.toml says {wanted}: it was grown by another tool"
            text += ", and a key's events before and after that may be in two partitions, in no order"
            found.append(warning(text, f"stream doctor   (once topics.toml says {topic.partitions})"))
        elif topic.partitions < wanted:
            text = f"{name} has {topic.partitions}, topics.toml says {wanted}"
            text += ": growing it moves keys, so its groups must be drained first"
            found.append(warning(text, f"stream topics grow {name} --partitions {wanted}"))
    return found or [success("as in topics.toml")]


def settings(declared: Declared, survey: Survey, prefix: str) -> Findings:
    found = []
    for name, topic in survey.topics.items():
        for key, wanted in topic_config(declared.topics[name]).items():
            has = topic.settings.get(key)
            if has is None or _same(has, wanted):
                continue
            alter = [
                "kafka-configs.sh",
                "--alter",
                "--topic",
                prefix + name,
                "--add-config",
                f"{key}={wanted}",
            ]
            found.append(warning(f"{name}: {key} is {has}, topics.toml says {wanted}", shlex.join(alter)))
    return found or [success("as in topics.toml")]


def identity(tables: Tables, survey: Survey) -> Findings:
    found = []
    for group, met in tables.met.items():
        for name, id in met.items():
            if name in survey.topics and survey.topics[name].id != id:
                text = (
                    f"group {group} has read another topic {name}: this one was created again, or the cluster"
                )
                text += " is another one; the group does not start on it"
                found.append(failure(text, _of("stream groups describe", group)))
    return found or [success("the groups' topics are those that they have read")]


def retention(tables: Tables, survey: Survey) -> Findings:
    """Does every group's ledger remember all that its topics can bring back?"""
    if survey.oldest is None:
        return [warning("the first records of some topics did not come in time", "stream doctor")]
    found = []
    for group, horizon in tables.horizons.items():
        first = {
            partition: time
            for partition, time in survey.oldest.items()
            if partition[0] in tables.met[group] and time is not None and time < horizon
        }
        if first:
            (name, number), time = min(first.items(), key=lambda item: item[1])
            text = f"the ledger of {group} remembers from {clock(horizon)} on, and {name}[{number}] holds records"
            text += f" since {clock(time)}: run again, these would be applied twice"
            found.append(failure(text, _of("stream groups describe", group)))
    return found or [success("the ledger remembers all that the topics still hold")]


def clocks(server: Server, survey: Survey) -> Findings:
    """The broker's clock is seen in what it has written only: one that is behind is not noticed."""
    off = max(0.0, abs(server.ahead_s) - server.exact_s)
    text = f"the database's is {server.ahead_s:+.3f} s off this machine's"
    found = [_clock(text, off)] if off > CLOCKS_MAY_DIFFER_S else []
    age = survey.newest_age_s
    if age is not None and age < -CLOCKS_MAY_DIFFER_S:
        found.append(_clock(f"the broker's is at least {-age:.1f} s ahead of this machine's", -age))
    newest = (
        "no record is there to tell the broker's"
        if age is None
        else f"its youngest record is {age:.1f} s old"
    )
    return found or [
        success(f"{text}; the broker's is not ahead: {newest}" if age is not None else f"{text}; {newest}")
    ]


def rights(server: Server) -> Findings:
    if not server.lacking:
        return [success(f"role {server.role} may do what it has to")]
    text = f"role {server.role} lacks {_some(server.lacking)}"
    return [failure(text, f"psql -c {shlex.quote(_grants(server.role))}   (as the owner)")]


def permissions(survey: Survey) -> Findings:
    return [
        failure(f"{name}: this client may not {', '.join(sorted(missing))}", "kafka-acls.sh --list")
        for name, missing in survey.denied.items()
    ] or [success("the broker lets this client do what it has to")]


def outbox(tables: Tables) -> Findings:
    state = tables.outbox
    found = [
        failure(
            f"topic {sick.topic} cannot be written since {clock(sick.since)}: {sick.reason}",
            "stream outbox status",
        )
        for sick in state.sick_topics
    ]
    if state.rejected:
        found.append(warning(f"{_plural(state.rejected, 'row')} rejected", "stream outbox rejected"))
    if not state.relays:
        waiting = f"{_plural(state.pending, 'row')} waiting, and " if state.pending else ""
        found.append(warning(f"{waiting}no relay is at work", "stream relay"))
    return found or [
        success(f"{_plural(state.pending, 'row')} waiting, {_plural(len(state.relays), 'relay')} at work")
    ]


def members(declared: Declared, tables: Tables) -> Findings:
    found = [
        warning(f"group {one.group} has no members", _of("stream consume --group", one.group))
        for one in tables.groups
        if not one.members and one.group in declared.groups
    ]
    return found or [success("every group has some")]


def holds(tables: Tables) -> Findings:
    found = []
    for one in tables.groups:
        for held in one.holds:
            say = failure if held.by == "halted" else warning
            found.append(
                say(
                    f"group {one.group} is {held.by}: {held.reason}", _of("stream groups describe", one.group)
                )
            )
    return found or [success("no group is held")]


def parked(tables: Tables) -> Findings:
    waiting = sum(one.parked for one in tables.groups)
    found = [
        warning(
            f"group {one.group}: {_plural(one.held, 'key')} held, waiting for you",
            _of("stream parked list --group", one.group),
        )
        for one in tables.groups
        if one.held
    ]
    return found or [success(f"{_plural(waiting, 'key')} waiting for a next try, none for you")]


def letters(tables: Tables) -> Findings:
    return [
        warning(
            f"group {one.group}: {_plural(one.dead, 'open letter')}",
            _of("stream dlq list --group", one.group),
        )
        for one in tables.groups
        if one.dead
    ] or [success("no letter is open")]


def locks(declared: Declared, server: Server) -> Findings:
    """stream.lock_keys lets one transaction take a quarter of the table. A run may need two locks an event: the key of
    what it emits, and its lane."""
    most, largest = server.locks // 4, max((group.batch for group in declared.groups.values()), default=1)
    text = f"{most:,} keys in one transaction (max_locks_per_transaction = {server.locks_per_transaction})"
    wanted = max(1024, 2 * server.locks_per_transaction)
    fix = f"psql -c 'alter system set max_locks_per_transaction = {wanted}'   (and restart PostgreSQL)"
    if most < 2 * largest:
        return [failure(f"{text}; a batch of {largest:,} may need {2 * largest:,}", fix)]
    if server.locks_held > server.locks // 2:
        return [warning(f"{server.locks_held:,} of {server.locks:,} locks are held now", fix)]
    return [success(text)]


# -- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """`needs`: the facts that `look` is called with, by their names."""

    name: str
    needs: tuple[str, ...]
    look: Callable[..., Findings]


CHECKS = (
    Check("schemas", ("schemas",), schemas),
    Check("consumers", ("declared",), consumers),
    Check("broker", ("broker",), broker),
    Check("database", ("server",), database),
    Check("migrations", ("migration",), migrations),
    Check("topics", ("declared", "broker"), topics),
    Check("partitions", ("declared", "broker"), partitions),
    Check("settings", ("declared", "broker", "prefix"), settings),
    Check("identity", ("tables", "broker"), identity),
    Check("retention", ("tables", "broker"), retention),
    Check("clocks", ("server", "broker"), clocks),
    Check("rights", ("server",), rights),
    Check("permissions", ("broker",), permissions),
    Check("outbox", ("tables",), outbox),
    Check("members", ("declared", "tables"), members),
    Check("holds", ("tables",), holds),
    Check("parked", ("tables",), parked),
    Check("letters", ("tables",), letters),
    Check("locks", ("declared", "server"), locks),
)


def run(facts: Facts) -> Findings:
    """Every check's findings, one at least, in the order of the table."""
    return [finding for check in CHECKS for finding in _run(check, facts)]


def _run(check: Check, facts: Facts) -> Findings:
    needed: list[Any] = [getattr(facts, name) for name in check.needs]
    problem = next((each for each in needed if isinstance(each, Problem)), None)
    if problem is None:
        found = check.look(*needed)
    elif problem.check == check.name:
        found = [failure(problem.message, problem.fix)]
    else:
        found = [Finding("", "halted", f"not run, see {problem.check}", problem.fix)]
    return [Finding(check.name, one.status, one.message, one.fix) for one in found]


def _clock(message: str, off_s: float) -> Finding:
    say = failure if off_s > CLOCKS_MUST_NOT_DIFFER_S else warning
    return say(message, "timedatectl timesync-status")


def _grants(role: str) -> str:
    return (
        f"grant usage on schema stream to {role};"
        f" grant select, insert, update, delete on all tables in schema stream to {role};"
        f" grant execute on all functions in schema stream to {role}"
    )


def _same(has: str, wanted: str) -> bool:
    """`compact,delete` is `delete,compact`."""
    return sorted(has.split(",")) == sorted(wanted.split(","))


def _of(command: str, group: str) -> str:
    return f"{command} {shlex.quote(group)}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
