"""flue-py store: add, list, show, rm; and what adding takes from a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import flue_py
import flue_py.sync
from flue_py.context.document_texts import MOST_BYTES
from flue_py.errors import InvalidArgument, UnreadableFile
from flue_py.transfer import FilesReport, add_files
from flue_py.transfer import export as filing
from tests.checks import raises
from tests.edges.cli_runs import Flue
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
