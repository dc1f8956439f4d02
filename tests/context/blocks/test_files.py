"""The block about the files of a store: an index, and never what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flue_py
import flue_py.sync
from flue_py.context.blocks import FileIndex
from flue_py.core.sessions import DocumentName, NewDocument
from flue_py.errors import InvalidArgument
from tests.tables import inputs
from tests.values import existing


def file(name: str, body: str = "secret text", **more: str) -> NewDocument:
    return NewDocument("file", name, body, **{"type": "text/plain", **more})


async def test_an_index_has_names_types_and_sizes_and_nothing_else(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "s.db") as store:
        index = FileIndex(store, project="/work", hint="Read one by read_file.")
        assert await index.read() is None
        await store.backend.put_document(file("b.md", "x" * 12_345, type="text/markdown"))
        await store.backend.put_document(file("a.txt", project="/work"))
        await store.backend.put_document(file("c.txt", project="/other"))
        await store.backend.put_document(file("d.txt", scope="elsewhere"))
        await store.backend.put_document(NewDocument("memory", "e", "secret text", "user", space="repl"))
        said = existing(await index.read())
        assert said.text.splitlines() == [
            "## Stored files",
            "",
            "Read one by read_file.",
            "- a.txt (text/plain, 11 characters)",
            "- b.md (text/markdown, 12,345 characters)",
        ]
        without = existing(await FileIndex(store).read())
        assert without.text == "## Stored files\n\n- b.md (text/markdown, 12,345 characters)"
        await store.backend.remove_document(DocumentName("", "file", "", "", "b.md"))
        assert await FileIndex(store).read() is None
        assert (await store.verify()).problems == []


async def test_an_index_of_many_files_is_cut_and_says_so() -> None:
    async with flue_py.open(":memory:") as store:
        for number in range(201):
            await store.backend.put_document(file(f"{number:03}.txt"))
        said = existing(await FileIndex(store).read())
        lines = said.text.splitlines()
        assert lines[2] == "- 000.txt (text/plain, 11 characters)"
        assert lines[-2:] == ["- 199.txt (text/plain, 11 characters)", "- ... and more than these 200"]


async def test_it_is_told_again_when_a_file_comes_or_goes() -> None:
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        blocks = [FileIndex(store)]
        assert (await session.append_blocks(blocks)).told == ()
        await store.backend.put_document(file("a.txt"))
        assert len((await session.append_blocks(blocks)).told) == 1
        assert (await session.append_blocks(blocks)).told == ()
        await store.backend.remove_document(DocumentName("", "file", "", "", "a.txt"))
        assert [told.is_withdrawn for told in (await session.append_blocks(blocks)).told] == [True]


async def test_what_is_no_store_or_place_is_refused() -> None:
    async with flue_py.open(":memory:") as store:
        wrong: Any
        for wrong in ({"scope": 5}, {"project": "a\nb"}, {"hint": None}):
            with pytest.raises(InvalidArgument, match=next(iter(wrong))):
                FileIndex(store, **wrong)
        for wrong in (None, store.backend, "s.db"):
            with pytest.raises(InvalidArgument, match="store"):
                FileIndex(wrong)


@inputs("threads", [None, True])
def test_the_twin_of_a_store_is_listed_too(tmp_path: Path, threads: bool | None) -> None:
    with flue_py.sync.open(tmp_path / "s.db", threads=threads) as store:
        session = store.create_session()
        assert session.append_blocks([FileIndex(store)]).failures == ()
