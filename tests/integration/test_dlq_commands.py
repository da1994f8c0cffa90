"""`stream dlq`: what is shown, what acts at once, what asks for --execute."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream import PermanentError, app
from stream.config import Config
from stream.project import Project
from tests.support.cli import follow, hints, stream, stream_json
from tests.support.letters import Troubled, halt, rows, statuses
from tests.support.retries import parked
from tests.support.small import make_project, record

Conn = psycopg.Connection[Any]
LIST = {"fingerprint", "group", "kind", "stage", "error_class", "count", "first_at", "last_at", "sample"}
LETTER = {
    "id", "group", "event_id", "type", "key", "topic", "partition", "offset", "kind", "stage", "error_class",
    "error_message", "attempts", "first_failed_at", "last_failed_at", "worker", "trace_id", "status",
}  # fmt: skip

COUNTING = """
from stream import ConsumerGroup

group = ConsumerGroup("counting", topics=["things"], start="beginning")

@group.on("Happened")
def count(event, ctx): ...
"""


@pytest.fixture
def small(config: Config, tmp_path: Path) -> Config:
    project = make_project(tmp_path / "small")
    small = replace(config, project=project.root)
    app.migrate(small, project)
    return small


@pytest.fixture
def group(small: Config, effects: Callable[[], list[tuple[str, int]]]) -> Iterator[Callable[..., Troubled]]:
    made: list[Troubled] = []

    def make(**options: Any) -> Troubled:
        made.append(Troubled(Project(small.project), small.database_url, **options))
        return made[-1]

    yield make
    for each in made:
        each.worker.execution.close()


def test_neither_letters_nor_parked_keys_nor_the_outbox_need_a_broker(small: Config, group) -> None:
    group(on_dead="hold").die(("a", 1), ("b", 2))
    for words in (
        ("dlq", "list"),
        ("dlq", "show", "1"),
        ("dlq", "export"),
        ("dlq", "replay", "1"),
        ("dlq", "discard", "2", "--reason", "no"),
        ("parked", "list"),
        ("parked", "release"),
        ("outbox", "status"),
    ):
        result = stream(small, *words, env={"KAFKA_BOOTSTRAP_SERVERS": ""})
        assert result.exit_code == 0, (words, result.output)
    needs = stream(small, "order", "show", "a", env={"KAFKA_BOOTSTRAP_SERVERS": ""})
    assert (needs.exit_code, hints(needs)) == (2, ["stream stack up   (or set KAFKA_BOOTSTRAP_SERVERS)"])


def test_without_letters_it_says_so(small: Config) -> None:
    result = stream(small, "dlq", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there are no dead letters" in result.stderr
    assert stream_json(small, "dlq", "list") == stream_json(small, "dlq", "list", "--all") == []


def test_letters_are_listed_by_what_failed_alike(small: Config, group) -> None:
    g = group(attempts=1)
    g.die(("a", 1), ("b", 2))
    g.die(("a", 3), error=ValueError("no price"))
    newest, oldest = stream_json(small, "dlq", "list")
    assert set(newest) == LIST
    assert (newest["group"], newest["kind"], newest["stage"]) == ("testers", "exhausted", "handler")
    assert (newest["error_class"], newest["count"], newest["sample"]) == ("ValueError", 1, "no price")
    assert (oldest["error_class"], oldest["count"]) == ("stream.errors.PermanentError", 2)
    assert oldest["first_at"] < oldest["last_at"] < newest["last_at"]
    assert oldest["last_at"].endswith("Z")
    text = stream(small, "dlq", "list")
    assert text.stdout.splitlines()[0].split() == [
        "GROUP", "FINGERPRINT", "KIND", "STAGE", "ERROR", "COUNT", "FIRST", "LAST", "SAMPLE"
    ]  # fmt: skip
    assert "no price" in text.stdout
    for command in hints(text):
        assert follow(small, command).exit_code == 0
    assert {status for _, status in rows_of(small)} == {"open"}  # what is printed there changes nothing


def rows_of(config: Config) -> list[tuple[int, str]]:
    return [(one["id"], one["status"]) for one in stream_json(config, "dlq", "list", "--all")]


def test_each_letter_is_shown_with_its_status(small: Config, group) -> None:
    group().die(("a", 1), ("b", 2), (None, 3))
    assert stream(small, "dlq", "replay", "2").exit_code == 0
    first, *_, keyless = stream_json(small, "dlq", "list", "--all")
    assert set(first) == LETTER
    assert (first["id"], first["key"], first["type"], first["topic"]) == (1, "a", "Happened", "things")
    assert (first["error_message"], first["attempts"]) == ("no lines in 1", 1)
    assert keyless["key"] is None
    assert rows_of(small) == [(1, "open"), (2, "replayed"), (3, "open")]
    found = stream_json(small, "dlq", "list", "--all", "--status", "open", "--key", "a")
    assert [one["id"] for one in found] == [1]
    refused = stream(small, "dlq", "list", "--status", "open", "--key", "a")
    assert (refused.exit_code, hints(refused)) == (2, ["stream dlq list --key a --all --status open"])
    assert follow(small, hints(refused)[0]).exit_code == 0


def test_filters_are_those_of_the_options(small: Config, group) -> None:
    g = group(attempts=1)
    g.die(("a", 1), ("b", 2))
    g.die(("c", 3), error=ValueError("no price"))
    [value_error] = stream_json(small, "dlq", "list", "--error-class", "ValueError")
    for words, expected in (
        (("--group", "testers"), [1, 2, 3]),
        (("--error-class", "PermanentError"), [1, 2]),
        (("--stage", "decode"), []),
        (("--key", "b"), [2]),
        (("--key", "\\x62"), [2]),
        (("--since", "1h"), [1, 2, 3]),
        (("--until", "1h"), []),
        (("--since", "2026-01-01", "--until", "2099-01-01T00:00:00Z"), [1, 2, 3]),
        (("--fingerprint", value_error["fingerprint"]), [3]),
    ):
        found = stream_json(small, "dlq", "list", "--all", *words)
        assert [one["id"] for one in found] == expected, words
    for wrong in (
        ("--since", "yesterday"),
        ("--since", "2026-13-01"),
        ("--until", "99999999999d"),
        ("--key", "\\xf"),
    ):
        assert stream(small, "dlq", "list", *wrong).exit_code == 2, wrong


def test_a_time_that_is_shown_chooses_what_it_was_shown_for(
    small: Config, group, conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        group(attempts=1).die(("a", 1), ("b", 2), error=ValueError("no price"))
        conn.execute(
            "update stream.dead_letter set last_failed_at = last_failed_at - interval '1 h' where id = 1"
        )
        conn.commit()
        last = re.compile(r"20\d\d-\S+Z")
        first, second = (
            last.search(line) for line in stream(small, "dlq", "list", "--all").stdout.splitlines()[1:]
        )
        assert first is not None and second is not None
        for option, expected in (("--since", [2]), ("--until", [1])):
            found = stream_json(small, "dlq", "list", "--all", option, second[0])
            assert [one["id"] for one in found] == expected
        facts = stream(small, "dlq", "show", "2").stdout.partition("\nheaders\n")[0]
        assert second[0] in facts
        assert not re.search(r"\d\d:\d\d:[\d.]+(?![\d.Z])", facts), facts
    finally:
        monkeypatch.undo()
        time.tzset()
    told = " ".join(stream(small, "dlq", "list", "--help").output.split())
    assert told.count("UTC where no zone is given") == 2


def test_show_tells_all_that_is_known_of_a_letter(small: Config, group, conn) -> None:
    g = group(attempts=2, on_dead="hold")
    trace = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    sent = record(Project(small.project), "a", 1)
    sent.headers = [*sent.headers, trace, ("x-odd", b"\xff"), ("x-none", None)]
    g.trouble[1] = ValueError("no price \x1b[31m")
    g.worker.run(sent)
    g.go_on(conn)
    g.run(("a", 2))
    text = stream(small, "dlq", "show", "1")
    assert text.exit_code == 0, text.output
    lines = text.stdout.splitlines()
    facts = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
    assert facts["group"] == "testers  (on_dead=hold: its key waits for it, 1 event waits behind it)"
    assert facts["origin"].startswith(sent.position)
    assert facts["trace"] == "0af7651916cd43dd8448eb211c80319c"
    assert facts["error"] == "ValueError: no price \\x1b[31m"
    tries = lines[lines.index("attempts, the newest first") + 2 :][:2]
    assert [line.split()[0] for line in tries] == ["2", "1"]
    assert "    raise self.trouble[n]" in text.stdout.replace("      raise", "    raise")
    assert "  x-odd: \\xff" in lines
    assert "  x-none: (null)" in lines
    assert '    "n": 1' in lines
    assert "frames of libraries" not in stream(small, "dlq", "show", "1", "--stack").stdout
    shown = stream_json(small, "dlq", "show", "1")
    assert shown.keys() > LETTER
    assert [error["attempt"] for error in shown["errors"]] == [2, 1]
    assert (shown["data"], shown["held"], shown["followers"]) == ({"n": 1}, True, 1)
    assert ["x-odd", "\\xff"] in shown["headers"]
    assert shown["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert hints(text) == ["stream dlq replay 1", "stream dlq discard 1 --reason '...'"]


def test_show_gives_bytes_that_are_no_event_in_hex(small: Config, group) -> None:
    g = group()
    g.worker.run(record(Project(small.project), "a", value=b"\x17garbage" + b"\0" * 1000))
    text = stream(small, "dlq", "show", "1").stdout
    assert "1008 bytes that are no event" in text
    assert "17676172 62616765" in text
    assert "752 more" in text
    shown = stream_json(small, "dlq", "show", "1")
    assert (shown["data"], shown["value"][:18]) == (None, "\\x1767617262616765")


def test_there_is_no_letter_of_that_number(small: Config) -> None:
    for words in (("show", "41"), ("replay", "41"), ("discard", "41", "--reason", "no")):
        result = stream(small, "dlq", *words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "there is no dead letter 41" in result.stderr
        assert follow(small, hints(result)[0]).exit_code == 0


def test_one_letter_is_replayed_at_once(small: Config, group, conn, effects) -> None:
    g = group()
    g.die(("a", 1))
    g.heal()
    result = stream(small, "dlq", "replay", "1")
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert "letter 1 (testers, things a): Happened runs again" in result.stderr
    assert "later events of the key may have been applied already" in result.stderr
    assert result.stderr.count("\n") == 2  # what is done, and what to type
    assert hints(result) == ["stream order show a"]
    assert (g.go_on(conn), effects()) == (["done"], [("a", 1)])
    again = stream(small, "dlq", "replay", "1")
    assert (again.exit_code, follow(small, hints(again)[0]).exit_code) == (4, 0)
    assert "it is replayed already" in again.stderr


def test_a_letter_whose_event_died_again_leads_to_the_newer_one(small: Config, group, conn) -> None:
    g = group()
    g.die(("a", 1))
    for id in (1, 2):
        assert stream(small, "dlq", "replay", str(id)).exit_code == 0
        g.go_on(conn)
    for old in ("1", "2"):
        shown = stream(small, "dlq", "show", old)
        assert re.search(r"^died again +letter 3$", shown.stdout, re.MULTILINE)
        assert hints(shown) == ["stream dlq show 3"]
        assert stream_json(small, "dlq", "show", old)["newer"] == 3
        for words in (("replay", old), ("discard", old, "--reason", "no")):
            refused = stream(small, "dlq", *words)
            assert refused.exit_code == 4
            assert "it is replayed already, and died again: letter 3" in refused.stderr
            assert hints(refused) == ["stream dlq show 3"]
    assert "died again" not in stream(small, "dlq", "show", "3").stdout


def test_a_replay_names_where_the_event_s_life_can_be_seen(small: Config, group, conn) -> None:
    group().die(("a b", 1), ("-v", 2), ("\n", 3), (None, 4))
    found = [hints(stream(small, "dlq", "replay", str(id))) for id in (1, 2, 3, 4)]
    assert found == [["stream order show 'a b'"], *[["stream dlq list --group testers"]] * 3]


def test_a_replay_says_in_one_way_what_its_key_did_meanwhile(small: Config, group, conn) -> None:
    g = group(on_dead="hold")
    g.die(("a", 1), ("b", 2))
    g.run(("a", 11), ("b", 12))
    assert stream(small, "parked", "release", "--key", "b").exit_code == 0
    held, released = (stream(small, "dlq", "replay", id).stderr for id in ("1", "2"))
    assert "runs again, before what waits behind it" in held
    assert "may have been applied already" not in held
    assert "runs again, after its key went on without it: later events of the key may have been" in released
    assert "before what waits" not in released


def test_a_letter_whose_effect_is_there_is_said_to_be_superseded(small: Config, group, conn) -> None:
    group().die(("a", 1), ("b", 2))
    conn.execute("update stream.ledger set outcome = 'done'")
    conn.commit()
    result = stream(small, "dlq", "replay", "1")
    assert result.exit_code == 0
    assert (
        "its effect is there already, the ledger says done; the letter is closed as superseded"
        in result.stderr
    )
    plan = stream(small, "dlq", "replay", "--group", "testers")
    assert "1 of them: the effect is there already" in plan.stderr
    assert "1 superseded, of 1" in follow(small, hints(plan)[0]).stderr
    assert (parked(conn), statuses(conn)) == ([], [(1, "superseded"), (2, "superseded")])


def test_several_letters_are_a_plan_until_they_are_executed(small: Config, group, conn) -> None:
    g = group()
    g.die(("a", 1), ("a", 2), ("b", 3))
    for words in (("1", "2", "3"), ("--group", "testers"), ("1", "--group", "testers")):
        plan = stream(small, "dlq", "replay", *words)
        assert plan.exit_code == 0, plan.output
        count = 1 if words[0] == "1" and "--group" in words else 3
        assert plan.stdout.splitlines()[1].split()[-1] == str(count)
        assert f"{count} letter" in plan.stderr
        assert "nothing was changed yet" in plan.stderr
    assert {status for _, status in statuses(conn)} == {"open"}
    plan = stream(small, "dlq", "replay", "--group", "testers", "--rate", "600/m")
    assert "3 letters of 2 keys, up to letter 3" in plan.stderr
    assert "2 keys went on without them" in plan.stderr
    [command] = hints(plan)
    assert command == "stream dlq replay --group testers --up-to 3 --rate 10/s --execute"
    g.die(("c", 4))  # it died after the plan was shown
    done = follow(small, command)
    assert done.exit_code == 0, done.output
    assert "3 replayed, of 3" in done.stderr
    assert statuses(conn) == [(1, "replayed"), (2, "replayed"), (3, "replayed"), (4, "open")]
    assert "no open letter fits" in follow(small, command).stderr


def test_a_group_that_runs_nothing_now_is_named(small: Config, group, conn) -> None:
    group().die(("a", 1), ("b", 2), ("c", 3))
    halt(conn, "testers")
    text = (
        "group testers is held (halted: ten in a row): its events run once it goes on\n"
        "-> stream groups describe testers\n"
    )
    assert text in stream(small, "dlq", "replay", "--group", "testers").stderr
    assert text in stream(small, "dlq", "replay", "1").stderr
    many = stream(small, "dlq", "replay", "2", "--group", "testers", "--execute").stderr
    assert text in many
    assert "1 replayed, of 1: they run again once their group goes on" in many
    conn.execute("update stream.group_state set halted_at = null")
    conn.commit()
    assert "is held" not in stream(small, "dlq", "replay", "3").stderr


def test_the_list_names_the_groups_of_its_letters_that_run_nothing(small: Config, group, conn) -> None:
    group().die(("a", 1))
    for name in ("testers", "quiet", "others"):
        halt(conn, name)
    text = "is held (halted: ten in a row): its events run once it goes on"
    for words in ((), ("--all",), ("--format", "json"), ("--group", "testers")):
        listed = stream(small, "dlq", "list", *words)
        assert listed.stderr.startswith(f"group testers {text}\n-> stream groups describe testers\n")
        assert listed.stderr.count(text) == 1
    none = stream(small, "dlq", "list", "--group", "quiet").stderr
    assert f"group quiet {text}" in none
    assert none.count(text) == 1


def test_a_group_that_nobody_knows_is_no_all_clear(small: Config, group, conn) -> None:
    group().die(("a", 1))  # a group that is not in the project any more
    halt(conn, "quiet")
    (small.project / "consumers" / "counting.py").write_text(COUNTING)
    for words in (("list",), ("list", "--all"), ("replay",), ("discard", "--reason", "no"), ("export",)):
        for known in ("testers", "quiet", "counting"):
            assert stream(small, "dlq", *words, "--group", known).exit_code == 0, (words, known)
        result = stream(small, "dlq", *words, "--group", "nope")
        assert (result.exit_code, result.stdout) == (2, ""), words
        assert "unknown group 'nope'; known are counting, quiet, testers" in result.stderr


def test_a_project_that_does_not_import_hides_no_letter(small: Config, group) -> None:
    group().die(("a", 1))
    (small.project / "consumers" / "broken.py").write_text("import no_such_library\n")
    assert stream(small, "dlq", "list", "--group", "testers").exit_code == 0
    unknown = stream(small, "dlq", "list", "--group", "nope")
    assert unknown.exit_code == 2
    assert "known are testers (those of consumers/ could not be read: " in unknown.stderr


def test_many_that_were_replayed_are_not_said_to_be_applied(small: Config, group) -> None:
    group().die(("a", 1), ("b", 2))
    done = stream(small, "dlq", "replay", "--group", "testers", "--execute")
    assert "2 replayed, of 2: they run again now; what dies again is a new letter" in done.stderr
    assert hints(done) == ["stream dlq list --group testers"]


def test_at_most_so_many_are_replayed(small: Config, group, conn) -> None:
    group().die(*((f"k{n}", n) for n in range(5)))
    plan = stream(small, "dlq", "replay", "--group", "testers", "--max", "2")
    assert "2 letters of 2 keys" in plan.stderr
    assert "2 replayed, of 2" in follow(small, hints(plan)[0]).stderr
    assert [status for _, status in statuses(conn)] == ["replayed"] * 2 + ["open"] * 3


def test_letters_that_are_not_open_are_named_and_left_out(small: Config, group, conn) -> None:
    group().die(("a", 1), ("b", 2), ("c", 3))
    stream(small, "dlq", "discard", "1", "--reason", "a test")
    result = stream(small, "dlq", "replay", "1", "2", "77", "--execute")
    assert result.exit_code == 0
    assert "left out: 1 (discarded already); 77 (no such letter)" in result.stderr
    assert "1 replayed, of 1" in result.stderr
    none = stream(small, "dlq", "replay", "1", "2", "99999", "--execute")
    assert (none.exit_code, follow(small, hints(none)[0]).exit_code) == (4, 0)
    why = "1 (discarded already); 2 (replayed already); 99999 (no such letter)"
    assert f"none of these letters can be acted on: {why}" in none.stderr
    none = stream(small, "dlq", "discard", "3", "1", "--key", "b", "--reason", "no")
    assert "3 (does not fit); 1 (discarded already)" in none.stderr


def test_a_letter_is_asked_for_by_its_number(small: Config) -> None:
    for words in (
        ("show", "abc"),
        ("show", "0"),
        ("replay", "1", "abc"),
        ("discard", "9" * 20, "--reason", "no"),
    ):
        result = stream(small, "dlq", *words)
        assert result.exit_code == 2
        assert "expected a letter's number, as `dlq list --all` shows it; got " in result.stderr


def test_a_letter_that_was_replayed_too_often_is_left_out(small: Config, group, conn) -> None:
    g = group()
    g.die(("a", 1))
    for id in range(1, 6):
        assert stream(small, "dlq", "replay", str(id)).exit_code == 0
        g.go_on(conn)
    refused = stream(small, "dlq", "replay", "6")
    assert refused.exit_code == 4
    assert "it was replayed 5 times before" in refused.stderr
    many = stream(small, "dlq", "replay", "--group", "testers", "--execute")
    assert "left out: 1 letter replayed 5 times or more before" in many.stderr
    assert parked(conn) == []
    assert follow(small, hints(refused)[0]).exit_code == 0
    assert statuses(conn)[-1] == (6, "replayed")


def test_replay_waits_for_a_key_and_then_says_what_is_left(
    small: Config, group, conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream.operators.LOCK_TIMEOUT", "200ms")
    group().die(("a", 1), ("b", 2))
    conn.execute("select stream.lock_lanes(array[stream.parked_lane('testers', 'things', 'a', 0)])")
    one = stream(small, "dlq", "replay", "1")
    assert one.exit_code == 4
    assert "did not end within 200ms" in one.stderr
    both = stream(small, "dlq", "replay", "--group", "testers", "--execute")
    conn.rollback()
    assert both.exit_code == 6
    assert "1 replayed, of 2" in both.stderr
    assert "1 of 2 letters left" in both.stderr
    assert follow(small, hints(both)[0]).exit_code == 0
    assert {status for _, status in statuses(conn)} == {"replayed"}


def test_discard_of_one_letter_acts_at_once_and_several_are_a_plan(
    small: Config, group, conn, effects
) -> None:
    g = group(on_dead="hold")
    g.die(("a", 1), ("b", 2), ("c", 3))
    g.run(("a", 11))
    one = stream(small, "dlq", "discard", "1", "--reason", "a test order")
    assert one.exit_code == 0, one.output
    assert "Happened never runs; its key goes on, with 1 event behind it" in one.stderr
    assert (g.go_on(conn), effects()) == (["done"], [("a", 11)])
    plan = stream(small, "dlq", "discard", "--group", "testers", "--reason", "all of it")
    assert plan.stdout.splitlines()[1].split()[-1] == "2"
    assert statuses(conn) == [(1, "discarded"), (2, "open"), (3, "open")]
    assert "2 discarded" in follow(small, hints(plan)[0]).stderr
    assert rows(conn, "select distinct resolved_reason from stream.dead_letter order by 1") == [
        ("a test order",), ("all of it",)
    ]  # fmt: skip
    assert parked(conn) == []
    assert stream(small, "dlq", "discard", "1", "--reason", "again").exit_code == 4


def test_what_is_to_be_acted_on_must_be_named(small: Config) -> None:
    for words in (
        ("replay",),
        ("replay", "--execute"),
        ("discard", "--reason", "no"),
        ("discard", "1"),
        ("discard", "1", "--reason", " "),
        ("replay", "--group", "g", "--rate", "fast"),
        ("replay", "--group", "g", "--rate", "0/s"),
        ("replay", "0"),
    ):
        assert stream(small, "dlq", *words).exit_code == 2, words


def test_export_writes_letters_as_lines_and_nothing_else(small: Config, group, conn) -> None:
    g = group()
    g.die(("a", 1), ("b", 2), error=PermanentError("line\nbreak"))
    g.worker.run(record(Project(small.project), "c", value=b"garbage"))
    stream(small, "dlq", "replay", "1")
    result = stream(small, "dlq", "export")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["id"] for line in lines] == [2, 3]
    assert (lines[0]["data"], lines[0]["error_message"]) == ({"n": 2}, "line\nbreak")
    assert (lines[1]["data"], lines[1]["value"]) == (None, "\\x" + b"garbage".hex())
    assert lines[0] == stream_json(small, "dlq", "show", "2")
    both = stream(small, "dlq", "export", "--status", "any", "--group", "testers").stdout
    assert [json.loads(line)["id"] for line in both.splitlines()] == [1, 2, 3]
