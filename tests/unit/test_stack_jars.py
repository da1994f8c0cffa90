"""The pinned jars of Apache Kafka."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from pathlib import Path

from stream.stack import jars
from stream.stack.jars import Jar


def test_every_jar_is_pinned_by_its_sha256() -> None:
    assert len(jars.pinned()) > 40
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars.pinned())


def test_no_two_jars_have_one_file_name() -> None:
    names = [jar.file for jar in jars.pinned()]
    assert len(set(names)) == len(names)


def test_all_of_kafka_is_of_one_version() -> None:
    versions = {jar.version for jar in jars.pinned() if jar.group == "org.apache.kafka"}
    assert versions == {jars.KAFKA_VERSION}


def test_the_list_names_no_host() -> None:
    text = files("stream.stack").joinpath("jars.txt").read_text(encoding="utf-8")
    assert "//" not in text


def test_a_jar_with_another_content_or_none_is_not_intact(tmp_path: Path) -> None:
    jar = Jar("g", "a", "1", hashlib.sha256(b"content").hexdigest())
    path = tmp_path / jar.file
    assert not jars.is_intact(path, jar)
    path.write_bytes(b"Content")
    assert not jars.is_intact(path, jar)
    path.write_bytes(b"content")
    assert jars.is_intact(path, jar)
