"""Memories: what agents keep from one session to the next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import flue_py
from flue_py import Document, DocumentName, Limits, Store
from flue_py.context.blocks import LocalMemory
from flue_py.errors import InvalidArgument
from tests.checks import raises
from tests.tables import inputs


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A new store, which verifies clean at the end."""
    place = ":memory:" if request.param == "memory" else str(tmp_path / "s.db")
    async with flue_py.open(place, limits=Limits(entry_bytes=1_000)) as store:
        yield store
        assert (await store.verify()).problems == []


def told(memories: tuple[Document, ...]) -> list[str]:
    return [f"{memory.type} {memory.name} {memory.body}" for memory in memories]


async def test_what_is_remembered_is_there_for_later_sessions(store: Store) -> None:
    info = await store.remember("editor", "uses vim")
    assert (info.type, info.space, info.project, info.scope) == ("user", "repl", "", "")
    await store.remember("answers", "short ones", type="feedback")
    await store.remember("build", "make test", type="project")
    expected = ["feedback answers short ones", "project build make test", "user editor uses vim"]
    assert told(await store.memories()) == expected
    again = await store.remember("editor", "uses emacs", type="reference")
    assert again.created_us == info.created_us
    assert told(await store.memories())[-1] == "reference editor uses emacs"
    assert await store.forget("editor")
    assert not await store.forget("editor")
    assert told(await store.memories()) == expected[:2]


async def test_a_project_with_memories_of_its_own_has_only_those(store: Store) -> None:
    await store.remember("a", "global")
    await store.remember("b", "of the project", project="/srv")
    await store.remember("c", "of an agent", space="agents/reviewer")
    assert told(await store.memories()) == ["user a global"]
    assert told(await store.memories(project="/srv")) == ["user b of the project"]
    assert told(await store.memories(project="/srv/inside")) == ["user a global"]
    assert told(await store.memories(space="agents/reviewer", project="/srv")) == ["user c of an agent"]
    assert await store.memories(space="agents/other") == ()
    assert await store.memories(scope="other") == ()
    assert told(await store.memories(project="/srv/inside", initialized=True)) == []
    assert await LocalMemory(store, project="/srv/inside", initialized=True).read() is None
    assert await store.forget("b", project="/srv")
    assert told(await store.memories(project="/srv")) == ["user a global"]


async def test_more_than_a_page_of_memories_is_returned_whole(store: Store) -> None:
    for number in range(205):
        await store.remember(f"m{number:03}", "x")
    assert [memory.name for memory in await store.memories()] == [f"m{number:03}" for number in range(205)]


async def test_memories_are_searched_everywhere_or_where_it_is_said(store: Store) -> None:
    await store.remember("editor", "uses VIM")
    await store.remember("plugin", "written for vim", project="/srv")
    await store.remember("style", "vim script", space="agents/reviewer")
    found = await store.search_memories("vim")
    assert [document.name for document in found.documents] == ["style", "editor", "plugin"]
    assert (found.searched, found.after) == (3, None)
    assert [each.name for each in (await store.search_memories("vim uses")).documents] == ["editor"]
    assert [each.name for each in (await store.search_memories("vim", space="repl")).documents] == ["editor", "plugin"]
    assert [each.name for each in (await store.search_memories("vim", project="/srv")).documents] == ["plugin"]
    first = await store.search_memories("vim", limit=2)
    assert first.after == DocumentName("", "memory", "repl", "", "editor")
    assert [each.name for each in (await store.search_memories("vim", after=first.after)).documents] == ["plugin"]


@inputs(
    ("change", "why"),
    [
        ({"space": "agent/a"}, "space: 'agent/a' is neither 'repl' nor"),
        ({"space": ""}, "space: "),
        ({"project": "work"}, "project: 'work' is not the absolute path"),
        ({"type": "two words"}, "type: "),
        ({"name": "a\nb"}, "name: "),
        ({"body": " \n"}, "body: says nothing"),
        ({"body": "secret\0"}, "body: holds a NUL"),
        ({"body": "secret" * 400}, r"body: 2400 bytes are more than 1000;"),
    ],
)
async def test_what_is_no_memory_is_refused_and_not_shown(store: Store, change: dict[str, str], why: str) -> None:
    caught = await raises(InvalidArgument, store.remember(**{"name": "n", "body": "secret", **change}), match=why)
    assert "secret" not in str(caught.value)
    assert (await store.info()).documents == 0


async def test_a_name_of_another_computer_is_a_project(store: Store) -> None:
    await store.remember("a", "b", project="C:\\work")
    assert told(await store.memories(project="C:\\work")) == ["user a b"]


def test_the_blocking_twin_remembers_too() -> None:
    with flue_py.sync.open(":memory:") as store:
        store.remember("a", "b")
        assert told(store.memories()) == ["user a b"]
        assert store.search_memories("b").searched == 1
        assert store.forget("a")
