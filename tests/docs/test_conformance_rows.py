"""The list of requirements is complete, its tests are there, and its ids stand nowhere else."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.contract import BackendContract

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests/conformance/requirements.md"
TEXT = PAGE.read_text(encoding="utf-8").replace("\n  ", " ")
ROWS = re.findall(r"^- ([A-Z]\d\d): (.+?\.) (`.*)$", TEXT, re.MULTILINE)
LAST = {"E": 44, "R": 17, "S": 22, "X": 3, "P": 35, "C": 43, "K": 9, "I": 6}
IDS = [f"{letter}{number:02}" for letter, last in LAST.items() for number in range(1, last + 1)]


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the names of the tests and test classes of a file, as pytest collects them."""
    path = ROOT / file
    if not path.is_file() or not path.name.startswith("test_"):
        return frozenset()
    named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    body = ast.parse(path.read_text(encoding="utf-8")).body
    names = {node.name for node in body if isinstance(node, named) and node.name.lower().startswith("test")}
    if "TestContract" in names:
        names |= {f"TestContract::{name}" for name in dir(BackendContract) if name.startswith("test_")}
    return frozenset(names)


def test_every_row_is_there_once_and_in_order() -> None:
    assert [row for row, _, _ in ROWS] == IDS


def test_every_row_says_what_it_asks_in_one_sentence_of_its_own() -> None:
    assert [row for row, asked, _ in ROWS if not asked.endswith(".")] == []
    assert len({asked for _, asked, _ in ROWS}) == len(ROWS)


def test_every_row_names_tests_that_are_there_and_may_say_what_is_done_otherwise() -> None:
    for row, _, proof in ROWS:
        for part in proof.partition("; except: ")[0].split("; "):
            node = re.fullmatch(r"`(tests/[\w/]+\.py)::([\w:]+)`", part)
            assert node is not None, f"{row}: {part}"
            assert node[2] in names_in(node[1]), f"{row}: {part}"


def test_the_list_and_the_page_count_its_rows() -> None:
    page = (ROOT / "docs/conformance.md").read_text(encoding="utf-8")
    assert f"these {len(ROWS)} things" in TEXT
    assert f"do {len(ROWS)} things" in page
    assert [row for row, _, proof in ROWS if "; except: " in proof] == ["S21", "C42"]
    assert "what 2 of them do otherwise" in page


def test_ids_of_rows_stand_nowhere_else() -> None:
    pattern = re.compile(rf"\b(?:{'|'.join(IDS)})\b")
    folders = ("flue_py", "tests", "benchmarks", "migrations", "docs")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".sql")]
    assert len(files) > 500
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *files)
        if path not in (PAGE, Path(__file__).resolve()) and path.is_file()
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
