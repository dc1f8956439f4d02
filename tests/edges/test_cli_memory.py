"""flue-py memory: add, list, search, rm."""

from __future__ import annotations

from pathlib import Path

import pytest

import flue_py.sync
from flue_py.cli import main
from tests.edges.cli_runs import Flue, runner


@pytest.fixture
def flue(tmp_path: Path) -> Flue:
    """A database that is not there yet."""
    return Flue(tmp_path)


def test_what_is_added_is_listed_found_and_forgotten(flue: Flue, tmp_path: Path) -> None:
    assert flue.lines("memory", "add", "editor", "Uses vim.") == ["remembered 'editor', 9 characters"]
    project = str(tmp_path / "work")
    row = flue.json("memory", "add", "build", "make\nmake test", "--type", "project", "--project", project)
    assert {**row, "createdAt": "", "changedAt": ""} == {
        "name": "build", "type": "project", "space": "repl", "project": project, "scope": "", "source": None,
        "characters": 14, "createdAt": "", "changedAt": "",
    }  # fmt: skip
    flue.run("memory", "add", "style", "vim script", "--agent", "reviewer")
    assert flue.lines("memory", "list") == [
        "memory of agent reviewer", "  [user] style: vim script", "memory", "  [user] editor: Uses vim.",
        f"memory for {project}", "  [project] build: make", "    make test",
    ]  # fmt: skip
    assert [each["name"] for each in flue.json("memory", "list", "--project", project)] == ["build"]
    assert [each["text"] for each in flue.json("memory", "list", "--agent", "reviewer")] == ["vim script"]
    assert [each["name"] for each in flue.json("memory", "search", "VIM")] == ["style", "editor"]
    assert [each["name"] for each in flue.json("memory", "search", "vim", "uses")] == ["editor"]
    assert flue.lines("memory", "search", "emacs") == ["nothing found"]
    assert flue.lines("memory", "list", "--scope", "other") == ["nothing is remembered"]
    assert flue.lines("memory", "rm", "editor", "--yes") == ["forgot 'editor', 9 characters"]
    assert flue.lines("memory", "rm", "editor", "--yes") == ["there is no memory 'editor'"]
    with flue_py.sync.open(flue.database) as store:
        assert [memory.name for memory in store.memories(project=project)] == ["build"]


def test_a_memory_is_forgotten_only_where_it_is_asked_for(flue: Flue) -> None:
    flue.run("memory", "add", "a", "of the REPL")
    flue.run("memory", "add", "a", "of an agent", "--agent", "x")
    assert flue.json("memory", "rm", "a", "--dry-run")["forgotten"]["characters"] == 11
    assert "there is no terminal to ask at" in flue.run("memory", "rm", "a", code=2).stderr
    assert flue.json("memory", "rm", "b", "--yes") == {"dryRun": False, "forgotten": None}
    assert flue.lines("memory", "rm", "a", "--agent", "x", "--yes") == ["forgot 'a' of agent x, 11 characters"]
    assert [each["text"] for each in flue.json("memory", "list")] == ["of the REPL"]


def test_what_is_no_memory_is_refused_and_its_text_is_not_shown(flue: Flue) -> None:
    said = flue.run("memory", "add", "a", "secret", "--type", "two words", code=1)
    assert "type: 'two words' is not one word" in said.stderr
    assert "secret" not in said.stderr


def test_the_text_comes_from_standard_input(flue: Flue) -> None:
    runner().invoke(main, ["--db", str(flue.database), "memory", "add", "a", "-"], input="from a pipe\n")
    assert [each["text"] for each in flue.json("memory", "list")] == ["from a pipe\n"]
