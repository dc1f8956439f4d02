"""Files of a store: texts for agents to read, with a name in a project and a scope."""

from __future__ import annotations

from typing import Any

import pytest

from flue_py import Store
from flue_py.errors import InvalidArgument

pytestmark = pytest.mark.anyio


async def test_a_file_is_added_replaced_listed_read_and_removed(store: Store) -> None:
    first = await store.add_file("a.md", "one", media_type="text/markdown", source="/tmp/a.md")
    assert (first.name, first.type, first.source, first.chars) == ("a.md", "text/markdown", "/tmp/a.md", 3)
    again = await store.add_file("a.md", "one", media_type="text/markdown", source="/tmp/a.md")
    assert again == first
    second = await store.add_file("a.md", "three")
    assert (second.chars, second.created_us) == (5, first.created_us)
    assert second.changed_us > first.changed_us
    await store.add_file("b.md", "other", project="/work")
    await store.add_file("c.md", "theirs", scope="them")
    assert [(file.project, file.name) for file in await store.files()] == [("", "a.md"), ("/work", "b.md")]
    assert [file.name for file in await store.files(project="/work")] == ["b.md"]
    assert [file.name for file in await store.files(project="")] == ["a.md"]
    assert [file.name for file in await store.files(scope="them")] == ["c.md"]
    found = await store.read_file("a.md")
    assert found is not None
    assert found.body == "three"
    assert await store.read_file("a.md", project="/work") is None
    assert await store.remove_file("a.md")
    assert not await store.remove_file("a.md")
    assert await store.read_file("a.md") is None


async def test_more_files_than_fit_a_page_are_listed(store: Store) -> None:
    for number in range(501):
        await store.add_file(f"{number:04}", "x")
    assert [file.name for file in await store.files()] == [f"{number:04}" for number in range(501)]


async def test_wrong_names_and_texts_are_refused_and_texts_not_shown(store: Store) -> None:
    wrong: Any
    for wrong in ("", " ", "a\nb", 5, None, "x" * 501):
        for call in (store.add_file(wrong, "x"), store.read_file(wrong), store.remove_file(wrong)):
            with pytest.raises(InvalidArgument, match="name"):
                await call
    for wrong in (5, None, b"x", "secret\0", "secret\ud800"):
        with pytest.raises(InvalidArgument, match="body") as caught:
            await store.add_file("a", wrong)
        assert "secret" not in str(caught.value)
    for given in ({"media_type": "a b"}, {"source": ""}, {"project": 5}, {"scope": 5}):
        with pytest.raises(InvalidArgument):
            await store.add_file("a", "x", **given)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        await store.files(project=5)  # type: ignore[arg-type]
    assert await store.files() == ()
