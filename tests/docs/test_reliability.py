"""The page on reliability: every section names its tests, and every test that it names is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
UNTESTED = "What is not tested here"
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the names of the tests of a file."""
    return frozenset(
        re.findall(r"^ *(?:async )?def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    )


def test_every_section_ends_with_its_tests() -> None:
    named = {
        section: text.rpartition("\nTests:\n\n")[2].strip().splitlines()
        for section, text in SECTIONS.items()
        if section != UNTESTED
    }
    assert [section for section, lines in named.items() if not lines] == []
    lines = [line for lines in named.values() for line in lines]
    assert [line for line in lines if not re.fullmatch(r"- `tests/[\w/]+\.py::test_\w+`", line)] == []


def test_every_test_that_is_named_is_there() -> None:
    assert [f"{file}::{name}" for file, name in NAMED if name not in names_in(file)] == []


def test_every_section_begins_with_its_promise() -> None:
    begins = {section: text.lstrip().startswith("**") for section, text in SECTIONS.items() if section != UNTESTED}
    assert len(begins) > 10
    assert [section for section, has_one in begins.items() if not has_one] == []
