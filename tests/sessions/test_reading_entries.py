"""Entries by their ids, those below another one, and pages of all, by a handle and by the blocking twin."""

from __future__ import annotations

from typing import Any

import pytest

import flue_py.sync
from flue_py import EntryNotFound, InvalidArgument, Session
from tests.sessions.talk import assistant, hold_turns, user


@pytest.mark.anyio
async def test_entries_are_answered_one_for_each_id(session: Session) -> None:
    ids = await hold_turns(session, 2)
    path = await session.get_active_path()
    assert await session.get_entries(reversed(ids)) == path[::-1]
    assert await session.get_entries([ids[0], "missing", ids[0]]) == [path[0], None, path[0]]
    assert await session.get_entries(()) == []
    assert await session.get_entries(entry.id for entry in path) == path


@pytest.mark.anyio
@pytest.mark.parametrize("ids", ["abc", b"abc", None, 5, ["a", 5], [None]])
async def test_ids_are_a_list_of_strings(session: Session, ids: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"ids: .* is not a"):
        await session.get_entries(ids)


@pytest.mark.anyio
async def test_children_are_told_of_an_entry_and_of_the_beginning(session: Session) -> None:
    ids = await hold_turns(session, 2)
    await session.move_leaf(ids[1])
    other = (await session.append_message(user("other"))).entry_id
    assert [entry.id for entry in await session.branches.children(ids[1])] == [ids[2], other]
    assert [entry.id for entry in await session.branches.children(None)] == [ids[0]]
    assert await session.branches.children(ids[3]) == []
    with pytest.raises(EntryNotFound):
        await session.branches.children("missing")
    with pytest.raises(InvalidArgument, match="entry_id"):
        await session.branches.children(5)  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_entries_are_read_page_by_page_from_either_end(session: Session) -> None:
    ids = await hold_turns(session, 3)
    page = await session.entries(limit=4)
    assert [entry.id for entry in page] == ids[:4]
    assert [entry.id for entry in await session.entries(after=ids[3], limit=4)] == ids[4:]
    assert [entry.id for entry in await session.entries(newest_first=True, limit=2)] == ids[:3:-1]
    await session.append_custom("note", 1)
    assert [entry.data for entry in await session.entries(kind="note")] == [1]
    assert await session.entries(kind="compaction") == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    "given",
    [{"kind": ""}, {"kind": 5}, {"kind": "a b"}, {"limit": 0}, {"limit": 1001}, {"limit": True}, {"newest_first": 1}],
)
async def test_a_page_of_what_cannot_be_is_refused(session: Session, given: Any) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(given))):
        await session.entries(**given)


def test_the_blocking_twin_looks_up_alike() -> None:
    with flue_py.sync.open(":memory:") as store:
        session = store.create_session(key="k")
        first, second = session.append_messages([user("one"), assistant("two")]).entry_ids
        assert [entry and entry.id for entry in session.get_entries([second, "x"])] == [second, None]
        found = store.get_entry(second)
        assert found is not None
        assert (found.id, found.session_id) == (second, session.id)
        assert store.get_entry("missing") is None
        assert [entry.id for entry in session.branches.children(first)] == [second]
        assert [entry.id for entry in session.entries(newest_first=True)] == [second, first]
