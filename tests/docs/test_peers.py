"""The comparison with other stores: its table, its chart, its page, and, where they are installed, its short form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.peers.chart import chart
from benchmarks.peers.figures import BEGIN, END, PICTURE, Results, table, written
from benchmarks.peers.rows import GROUPS, ROWS
from benchmarks.peers.stores import STORES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "comparison.md"
MISSING = [store.missing for store in STORES if store.missing]


def took(*milliseconds: float) -> dict[str, Any]:
    """Return what a round measured, from its samples."""
    return {"samples": [each / 1e3 for each in milliseconds], "value": None, "over": None, "failed": 0, "length": None}


def came_to(value: float) -> dict[str, Any]:
    """Return what a round measured, from its one value."""
    return {**took(), "value": value}


def stopped(seconds: float) -> dict[str, Any]:
    """Return what a round measured where it took too long."""
    return {**took(), "over": seconds}


def results(measured: dict[str, dict[str, list[dict[str, Any] | None]]]) -> Results:
    return Results("a machine", 2, measured, {"flue_py": "wal, synchronous 2", "jsonl": "files"}, {"flue-py": "1.0"})


def cells(printed: str, title: str) -> list[str]:
    (line,) = [line for line in printed.splitlines() if line.startswith(f"| {title}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_ratio_is_taken_inside_a_round_and_judged_against_the_best_raced_store() -> None:
    row = {
        "flue_py": [took(1.0), took(4.0)],
        "openai_sqlite": [took(2.0), took(4.8)],
        "adk": [took(9.0), took(36.0)],
        "jsonl": [took(0.5), took(2.0)],
    }
    printed = table(results({"append": row}))

    assert cells(printed, "what") == [
        "what", "flue_py", "SQLiteSession", "DatabaseSessionService", "JSONL, fsync", "goal", "reached",
    ]  # fmt: skip
    assert cells(printed, "append, one session") == [
        "append, one session", "2,500 us", "1.60", "9.00", "0.50", "1.3", "yes",
    ]  # fmt: skip


def test_of_a_rate_the_ratio_is_that_of_the_costs() -> None:
    printed = table(results({"at_once": {"flue_py": [came_to(6000.0)], "adk": [came_to(1500.0)]}}))

    assert cells(printed, "100 sessions")[1:] == ["6,000 /s", "4.00", "5", "NO"]


def test_what_took_too_long_says_so_and_is_no_figure() -> None:
    measured = {"fork": {"flue_py": [took(1.0), took(1.0)], "adk": [stopped(5.0), None], "jsonl": [None, None]}}
    printed = table(results(measured))

    _, ours, theirs, file, goal, reached = cells(printed, "fork in the middle")
    assert ours == "1 ms"
    assert theirs.startswith("over 5 s [")
    assert file.startswith("- [")
    assert (goal, reached) == ("", "")


def test_what_a_store_does_otherwise_is_marked_and_told_once() -> None:
    row = {"flue_py": [took(1.0)], "openai_sqlite": [took(9.0)], "openai_sqlalchemy": [took(9.0)]}
    printed = table(results({"fork": row}))

    assert cells(printed, "fork")[2:4] == ["9.00 [a]", "9.00 [a]"]
    assert printed.count("- [a] has no fork") == 1


def test_a_failure_is_told_with_what_failed() -> None:
    failed = {"error": "OperationalError: database is locked"}
    printed = table(results({"usage": {"flue_py": [took(1.0)], "adk": [failed]}}))

    assert cells(printed, "usage")[2].startswith("failed [a]")
    assert "database is locked" in printed


def test_appends_that_failed_are_counted_in_a_note() -> None:
    row = {"flue_py": [came_to(9.0)], "adk": [{**came_to(3.0), "failed": 7}]}

    assert "7 appends of all rounds failed" in table(results({"at_once": row}))


def test_the_chart_has_a_dot_for_each_store_that_was_measured_in_a_row() -> None:
    measured = {
        "append": {"flue_py": [took(1.0)], "openai_sqlite": [took(2.0)], "adk": [took(50.0)]},
        "fork": {"flue_py": [took(1.0)], "openai_sqlite": [took(2000.0)], "adk": [stopped(5.0)]},
    }

    picture = ElementTree.fromstring(chart(results(measured)))

    told = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert told[1:] == ["SQLiteSession: 2.00 x", "DatabaseSessionService: 50.0 x", "SQLiteSession: 2,000 x"]
    width = float(picture.attrib["width"])
    assert all(0 < float(dot.attrib["cx"]) < width for dot in picture.iter("{http://www.w3.org/2000/svg}circle"))


def test_only_what_is_between_the_marks_of_the_page_is_written_anew() -> None:
    found = results({"append": {"flue_py": [took(1.0)], "adk": [took(2.0)]}})
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"

    once = written(page, found)

    assert once.startswith(f"before\n{BEGIN}\n")
    assert once.endswith(f"{END}\nafter\n")
    assert "old" not in once
    assert "a machine" in once
    assert written(once, found) == once


def test_a_page_without_marks_is_left_alone() -> None:
    with pytest.raises(ValueError, match="has no"):
        written("a page", results({}))


def test_the_page_has_every_row_and_its_chart() -> None:
    section = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]

    assert [row.title for row in ROWS if f"\n| {row.title} " not in section] == []
    assert f"]({PICTURE})" in section
    assert ElementTree.parse(PAGE.with_name(PICTURE)).getroot().tag.endswith("svg")


def test_every_group_of_rows_has_its_work_and_every_note_its_row() -> None:
    source = (ROOT / "benchmarks" / "peers" / "work.py").read_text(encoding="utf-8")
    names = {row.name for row in ROWS}

    assert [group.work for group in GROUPS if f"\nasync def {group.work}(" not in source] == []
    assert [(store.name, note) for store in STORES for note in store.notes if note not in names] == []


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"needs the extra bench: {', '.join(map(str, MISSING))} not installed")
def test_the_short_form_measures_every_store_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "peers" / "run.py"), "--short", "--dir", str(tmp_path)]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert cells(printed, "what")[1:-2] == [store.title for store in STORES]
    assert "failed" not in printed
    assert all(cells(printed, row.title)[1] for row in ROWS)
    assert list(tmp_path.iterdir()) == []
