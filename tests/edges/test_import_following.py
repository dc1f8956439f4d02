"""A file that grows while it is watched: only new rows are read, and the result is that of reading it whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.formats.kit import ReadAgain
from flue_py.formats.pi import PiReader
from flue_py.sessions.store import Store
from flue_py.transfer.imports import FollowedFiles, ImportedFiles, ImportReport, import_source
from flue_py.transfer.marks import take_up
from flue_py.transfer.source import ImportSource
from tests.formats.pi_files import HEADER, SESSION_ID, every_type
from tests.formats.test_codex_files import FILES, FORK, SOURCE, names_of
from tests.formats.transcripts import CLAUDE, CODEX_MADE, CODEX_REAL, all_seen, as_lines, lines_of
from tests.programs.made import unpack
from tests.tables import inputs
from tests.values import existing


class Anew:
    """Imports of one command each, which know only what the store remembers."""

    def __init__(self, store: Store, form: str) -> None:
        self.store, self.form = store, form

    async def catch_up(self, path: Path, *, take_all: bool) -> ImportReport:
        remembered = ImportedFiles(self.store, "", finish=take_all, wanted=self.form, version="1")
        await remembered.read()
        with remembered.source(path) as source:
            source.start()
            report = await import_source(self.store, source)
            remembered.note(source, report)
        await remembered.write()
        return report


class Watched:
    """A file that grows, a store that follows it, and another one that imports all of it each time."""

    def __init__(self, followed: Store, whole: Store, path: Path, form: str, *, is_anew: bool = True) -> None:
        self.followed, self.whole, self.path, self.form = followed, whole, path, form
        self.files = Anew(followed, form) if is_anew else FollowedFiles(followed, form, None, again=False)

    async def is_as_whole(self, data: bytes, *, finish: bool = False) -> ImportReport:
        """Write the file and import it into both; return the report, which is the same."""
        self.path.write_bytes(data)
        report = await self.files.catch_up(self.path, take_all=finish)
        assert report == await flue_py.transfer.import_file(self.whole, self.path, self.form, finish=finish)
        # What one import brought is one change, which one undo takes back.
        assert await revisions(self.followed) == await revisions(self.whole)
        return report


async def revisions(store: Store) -> dict[str, int]:
    return {info.id: info.revision for info in (await store.list_sessions(limit=100)).sessions}


async def bill(store: Store) -> list[Any]:
    report = await store.usage(group_by=["session", "branch", "model", "day"])
    return [row.to_json() for row in report.rows]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether each file that was opened was read on from where an import before had stopped."""
    went_on: list[bool] = []
    start = ImportSource.start

    def noted(source: ImportSource) -> None:
        start(source)
        went_on.append(source.goes_on)

    monkeypatch.setattr(ImportSource, "start", noted)
    return went_on


def program_lines(folder: Path, program: str, pattern: str) -> tuple[str, list[bytes]]:
    path = min(unpack(program, folder).glob(pattern), key=lambda path: path.stat().st_size)
    return path.name, path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("claude-code", CLAUDE),
        ("pi", "pi"),
        ("codex", CODEX_REAL),
        ("codex", CODEX_MADE),
        ("qwen-code", "qwen-code-0.24.4"),
    ],
)
async def test_at_every_length_the_rows_behind_give_the_whole_file(
    form: str, name: str, tmp_path: Path, starts: list[bool]
) -> None:
    if form == "pi":
        file, lines = "session.jsonl", as_lines([HEADER, *every_type()])
    elif name.endswith(".gz"):
        file, lines = "session.jsonl", lines_of(name)[:30]
    else:
        file, lines = program_lines(tmp_path / "home", name, "**/*.jsonl")
    async with flue_py.open(":memory:") as followed, flue_py.open(":memory:") as whole:
        watched = Watched(followed, whole, tmp_path / file, form)
        data = lines[0]
        for line in lines[1:]:
            await watched.is_as_whole(data + line[: len(line) // 2])
            data += line
            await watched.is_as_whole(data)
        await watched.is_as_whole(data, finish=True)
        assert await bill(followed) == await bill(whole)
        assert await all_seen(followed) == await all_seen(whole)
        assert (await followed.verify()).problems == []
    assert sum(starts[::2]) >= len(lines) - 1, "of two imports, the first follows"


async def test_a_label_of_a_row_that_is_left_out_is_noted_once(tmp_path: Path) -> None:
    common = {"type": "custom", "customType": "x", "timestamp": "2026-01-05T10:00:00.000Z"}
    circle = [{**common, "id": "a", "parentId": "b"}, {**common, "id": "b", "parentId": "a"}]
    label = {**common, "type": "label", "id": "c", "parentId": None, "targetId": "a", "label": "kept"}
    async with flue_py.open(":memory:") as followed, flue_py.open(":memory:") as whole:
        watched = Watched(followed, whole, tmp_path / "session.jsonl", "pi")
        report = await watched.is_as_whole(b"".join(as_lines([HEADER, label, *circle])))
        assert [note.text for note in report.repaired] == ["labels 'a', which is not in the file; no label was set"]


@pytest.mark.parametrize("is_anew", [False, True])
async def test_what_was_not_as_it_was_left_is_read_whole(tmp_path: Path, starts: list[bool], is_anew: bool) -> None:
    def said(name: str, parent: str | None) -> dict[str, Any]:
        message = {"role": "user", "content": name, "timestamp": 1}
        row = {"type": "message", "id": name, "parentId": parent, "timestamp": "2026-01-05T10:00:00.000Z"}
        return {**row, "message": message}

    rows = [HEADER, said("a", None), said("b", "a")]
    async with flue_py.open(":memory:") as followed, flue_py.open(":memory:") as whole:
        watched = Watched(followed, whole, tmp_path / "session.jsonl", "pi", is_anew=is_anew)

        async def goes_on(*new: dict[str, Any]) -> bool:
            rows.extend(new)
            starts.clear()
            await watched.is_as_whole(b"".join(as_lines(rows)))
            assert await all_seen(followed) == await all_seen(whole)
            return starts[0]

        assert [await goes_on(), await goes_on(), await goes_on(said("c", "b"))] == [False, True, True]
        assert not await goes_on(said("c", "a")), "it has the id of a row before"
        assert await goes_on(said("e", "d"))
        assert not await goes_on(said("d", "a")), "a row before it names it"
        for store in (followed, whole):
            await existing(await store.get_session(SESSION_ID)).move_leaf("a")
        assert not await goes_on(said("g", "c")), "the leaf was moved"
        assert not await goes_on(said("h", "g")), "it was kept there"
        rows[0] = {**HEADER, "cwd": "/elsewhere"}
        assert not await goes_on(said("i", "h")), "the file begins in another way"


@pytest.mark.parametrize("is_anew", [False, True])
async def test_a_fork_looks_again_for_the_file_that_it_goes_on_from(tmp_path: Path, is_anew: bool) -> None:
    parent, fork = min(names_of(SOURCE), key=len), names_of(FORK)[0]
    rows = FILES[fork].encode().splitlines(keepends=True)
    async with flue_py.open(":memory:") as followed, flue_py.open(":memory:") as whole:
        watched = Watched(followed, whole, tmp_path / fork, "codex", is_anew=is_anew)
        assert (await watched.is_as_whole(b"".join(rows[:-1]))).repaired_rows == 1
        (tmp_path / parent).write_text(FILES[parent])
        assert (await watched.is_as_whole(b"".join(rows))).rows > len(rows)


_GROWN = """
import sys
from pathlib import Path
from flue_py.transfer.marks import take_up
from flue_py.transfer.source import ImportSource
with ImportSource(Path(sys.argv[1]), is_followed=True) as source:
    source.start()
    while source.batch() is not None:
        pass
print(hash("x"), source.bookmark.reader, sep="\\n")
"""


def test_another_process_knows_the_ids_that_a_reader_met(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"".join(as_lines([HEADER, *every_type()])))
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    script = [sys.executable, "-c", _GROWN, str(path)]
    printed = subprocess.run(script, env=environment, check=True, capture_output=True, text=True).stdout
    hashed, text = printed.splitlines()
    assert hashed != str(hash("x"))
    reader = PiReader(path.name)
    assert take_up(reader, text)
    with pytest.raises(ReadAgain):
        reader.scan(1, path.read_bytes().splitlines()[-1])


@inputs(
    "text",
    [
        "", "[]", "{}", "[[]]", '[["CodexReader", [], []]]', '[["PiReader", [[7]], ["_draft"]]]', "[" * 100_000,
        '[["PiReader", [["Popen", "sh"]], ["_draft"]]]', '[["PiReader", [["PiReader"]], ["_draft"]]]',
    ]
)  # fmt: skip
def test_a_text_that_is_none_of_a_reader_is_refused(text: str) -> None:
    assert not take_up(PiReader("session.jsonl"), text)
