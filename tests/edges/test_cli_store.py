"""flue-py store: add, list, show, rm; and what adding takes from a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import flue_py
import flue_py.sync
from flue_py.cli import main
from flue_py.context.document_texts import MOST_BYTES
from flue_py.errors import InvalidArgument, UnreadableFile
from flue_py.transfer import FilesReport, add_files
from flue_py.transfer import export as filing
from tests.checks import raises
from tests.edges.cli_runs import Flue, runner
from tests.values import existing


def names(report: FilesReport) -> list[str]:
    return [file.name for file in report.added]


def test_files_and_folders_are_added_listed_shown_and_removed(flue: Flue, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "guide").mkdir(parents=True)
    (docs / "guide" / "start.md").write_text("# Start\n")
    (docs / "b.txt").write_bytes(b"\xef\xbb\xbfplain")
    (docs / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    added = flue.json("store", "add", str(docs), code=1)
    assert [(each["name"], each["type"], each["characters"]) for each in added["added"]] == [
        ("docs/b.txt", "text/plain", 5),
        ("docs/guide/start.md", "text/markdown", 8),
    ]
    assert added["refused"] == [{"name": "docs/picture.png", "reason": "'picture.png' is not a text in UTF-8"}]
    one = flue.json("store", "add", str(docs / "b.txt"), "--name", "b", "--project", str(tmp_path))
    assert [each["project"] for each in one["added"]] == [str(tmp_path)]
    assert [each["name"] for each in flue.json("store", "list")] == ["docs/b.txt", "docs/guide/start.md", "b"]
    assert [each["name"] for each in flue.json("store", "list", "--project", str(tmp_path))] == ["b"]
    head, *lines = flue.lines("store", "list")
    assert head.split() == ["file", "characters", "changed", "type", "project"]
    assert lines[0].startswith("docs/b.txt")
    assert flue.lines("store", "show", "docs/guide/start.md") == ["# Start"]
    assert flue.json("store", "show", "docs/b.txt")["text"] == "plain"
    assert "there is no file 'b'" in flue.run("store", "show", "b", code=1).stderr
    assert flue.json("store", "rm", "b", "--yes") == {"dryRun": False, "deleted": None}
    assert flue.json("store", "rm", "docs/b.txt", "--dry-run")["deleted"]["name"] == "docs/b.txt"
    flue.run("store", "rm", "docs/b.txt", code=2)
    assert len(flue.json("store", "list")) == 3
    assert flue.lines("store", "rm", "docs/b.txt", "--yes") == ["deleted 'docs/b.txt', 5 characters"]
    assert len(flue.json("store", "list")) == 2
    assert "cannot be read" in flue.run("store", "add", str(tmp_path / "none"), code=1).stderr


async def test_a_folder_is_taken_without_what_is_hidden_or_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("x")
    (folder / ".env").write_text("SECRET=1")
    (tmp_path / "secret").write_text("x")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "loop").symlink_to(folder)
    (folder / "a").write_text("x")
    (folder / "nul").write_bytes(b"a\0b")
    os.mkfifo(folder / "pipe")
    async with flue_py.open(":memory:") as store:
        report = await add_files(store, folder, name="given/")
        assert names(report) == ["given/a"]
        assert [(each.name, each.reason.partition(":")[0]) for each in report.refused] == [
            ("given/nul", "'nul' is not a text"),
            ("given/pipe", f"'{folder}/pipe' is not a file"),
        ]
        # One that is named is meant, wherever it leads.
        assert names(await add_files(store, folder / "link")) == ["link"]
        assert names(await add_files(store, folder / ".env")) == [".env"]
        for single in ("nul", "pipe"):
            await raises(UnreadableFile, add_files(store, folder / single))


async def test_bounds_of_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    with (tmp_path / "b").open("r+b") as file:
        file.truncate(MOST_BYTES + 1)
    async with flue_py.open(":memory:") as store:
        report = await add_files(store, tmp_path, name="x")
        assert names(report) == ["x/a"]
        assert "more than 67,108,864 bytes" in report.refused[0].reason
        monkeypatch.setattr(filing, "MOST_FILES", 1)
        await raises(InvalidArgument, add_files(store, tmp_path), match="more than 1 files")
        for wrong in (5, "", None):
            await raises(InvalidArgument, add_files(store, wrong), match="path")  # type: ignore[arg-type]
        await raises(InvalidArgument, add_files(store, tmp_path, name=5), match="name")  # type: ignore[arg-type]


def test_the_text_of_documents_is_added(tmp_path: Path) -> None:
    documents = pytest.importorskip("tests.context.documents")
    (tmp_path / "a.docx").write_bytes(documents.word("What it says"))
    (tmp_path / "b.pdf").write_bytes(documents.encrypted_pdf("x"))
    with flue_py.sync.open(tmp_path / "s.db") as store:
        report = flue_py.sync.add_files(store, tmp_path / "a.docx")
        assert report.added[0].type.endswith("wordprocessingml.document")
        found = existing(store.read_file("a.docx"))
        assert found.body == "What it says"
        with pytest.raises(UnreadableFile, match="encrypted"):
            flue_py.sync.add_files(store, tmp_path / "b.pdf")
        assert len(store.files()) == 1
        assert store.remove_file("a.docx")
        assert store.verify().problems == []


# -- flue-py memory ---------------------------------------------------------------------------------------------------


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
