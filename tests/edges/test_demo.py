"""The demo: its sections in order, what they show, and the database it used."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from flue_py.cli import main
from flue_py.cli.main import TAKEN
from flue_py.demo import read_transcript
from tests.edges.cli_runs import Flue, runner

TITLES = [
    "A real session of the pi coding agent", "The tree, with its branches and its leaf", "The active path",
    "The context the model sees", "The usage of the last call", "The sessions", "Deleting the task session",
    "The sessions that are left", "The store checks itself",
]  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    result = runner().invoke(main, ["demo"], env={"COLUMNS": "80", "TMPDIR": str(tmp_path_factory.mktemp("demo"))})
    assert result.exit_code == 0, result.stderr
    return result.stdout


def section(told: str, title: str) -> list[str]:
    lines = told.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"{title} ─"))
    following = lines[start + 1 :]
    return following[: following.index("")] if "" in following else following


def test_sections_come_in_order_within_eighty_columns(told: str) -> None:
    heads = [line.rstrip("─ ") for line in told.splitlines() if line.endswith("─")]
    assert heads == TITLES
    assert max(map(len, told.splitlines()[1:])) <= 80


def test_the_temporary_database_is_named_and_gone(told: str) -> None:
    match = re.match(r"database: (\S+) \(temporary, removed at the end\)\n", told)
    assert match
    assert not Path(match.group(1)).parent.exists()


def test_it_ends_with_where_a_first_use_goes_on(told: str) -> None:
    assert told.splitlines()[-1] == ("Your own are next: flue-py import auto --discover, then flue-py sessions")


def test_the_tree_has_a_branch_a_label_and_the_leaf(told: str) -> None:
    lines = section(told, "The tree, with its branches and its leaf")
    assert any("├─○" in line for line in lines)
    assert any("[before the release]" in line for line in lines)
    assert "← leaf Σ 12.10" in lines[-1]
    assert lines[-1].endswith(" 0.0019")
    assert any("compaction" in line for line in lines)


def test_the_context_begins_with_the_summary_and_is_smaller_than_the_path(told: str) -> None:
    size, *lines = section(told, "The context the model sees")
    assert size.startswith("17 messages, ")
    assert "compaction" in lines[0]
    assert "← leaf" in section(told, "The active path")[-1]


def test_the_last_call_is_counted_exactly(told: str) -> None:
    total = section(told, "The usage of the last call")[-1]
    assert total.split() == ["total", "4,363", "0.001944"]


def test_deleting_the_task_takes_its_own_task_along_and_nothing_else(told: str) -> None:
    assert section(told, "Deleting the task session")[0] == "2 sessions, 4 entries deleted"
    before, after = section(told, "The sessions"), section(told, "The sessions that are left")
    assert [len(before), len(after)] == [5, 3]
    assert set(after) <= set(before)
    assert section(told, "The store checks itself") == ["320 entries: 0 problems"]


def test_a_named_database_is_kept_and_can_be_read_but_not_told_twice(tmp_path: Path) -> None:
    flue = Flue(tmp_path / "kept")
    result = runner().invoke(main, ["demo", "--db", str(flue.database)])
    assert result.exit_code == 0, result.stderr
    assert [info["kind"] for info in flue.json("sessions")].count("fork") == 1
    again = flue.run("demo", code=TAKEN)
    assert "holds the demo already" in again.stderr
    assert flue.json("info")["sessions"] == 2


def test_the_transcript_is_whole_and_its_source_is_named() -> None:
    parsed, report = read_transcript()
    assert len(parsed.entries) == 313
    assert report.skipped == report.repaired == ()
    notice = files("flue_py.demo").joinpath("NOTICE").read_text(encoding="utf-8")
    for words in ("badlogic/pi-mono", "83378aad", "large-session.jsonl", "MIT License", "Mario Zechner"):
        assert words in notice
