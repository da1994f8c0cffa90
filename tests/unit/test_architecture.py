"""ARCHITECTURE.md and README.md name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(p.name for p in (ROOT / "stream").glob("*.py") if p.name != "__init__.py")
FOLDERS = sorted(f"{p.name}/" for p in (ROOT / "stream").iterdir() if p.is_dir() and any(p.glob("[a-z_]*")))


@pytest.mark.parametrize("name", [*MODULES, *(f for f in FOLDERS if not f.startswith(("__", "sql")))])
def test_the_map_names_every_module(name: str) -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text[text.index("## The map") : text.index("## Glossary")]
    assert f"`{name}`" in table


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md"])
def test_every_file_a_document_names_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:stream|tests|schemas|benchmarks)/[\w./-]+)`", text))
    named |= {f"tests/acceptance/{name}" for name in re.findall(r"`(test_\w+\.py)`", text)}
    named |= set(re.findall(r"\]\(([\w./-]+)\)", text))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
