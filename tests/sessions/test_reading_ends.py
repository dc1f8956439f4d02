"""The end of a path and of a context: what a handle takes, what it notes, and the blocking twin."""

from __future__ import annotations

from typing import Any

import pytest

import flue_py.sync
from flue_py import InvalidArgument, Session
from tests.sessions.talk import hold_turns, texts, user
from tests.tables import inputs


@pytest.mark.anyio
async def test_the_last_entries_messages_and_items_are_the_end_of_all(session: Session) -> None:
    ids = await hold_turns(session, 5)
    assert [entry.id for entry in await session.get_active_path(limit=3)] == ids[-3:]
    assert await session.build_context(limit=4) == (await session.build_context())[-4:]
    assert [item.entry_id for item in await session.build_context_entries(limit=2)] == ids[-2:]
    assert texts(await session.get_active_path(leaf=ids[3], limit=1)) == ["A2"]
    assert await session.build_context(leaf=None, limit=1) == []
    for read in (session.get_active_path, session.build_context, session.build_context_entries):
        assert len(await read(limit=1000)) == len(await read()) == 10


@pytest.mark.anyio
async def test_reading_the_end_of_the_context_takes_over_the_stored_leaf(
    session: Session, store: flue_py.Store
) -> None:
    await hold_turns(session, 2)
    for read in ("build_context", "build_context_entries"):
        other = await store.open_session(session.key, scope=session.info.scope)
        await session.append_message(user("more"))
        await getattr(other, read)(leaf=other.leaf_id, limit=1)
        assert other.leaf_id != session.leaf_id
        await getattr(other, read)(limit=1)
        assert (other.leaf_id, other.revision) == (session.leaf_id, session.revision)


@pytest.mark.anyio
@inputs("limit", [0, -1, True, 1.0, "5", float("nan")])
async def test_a_limit_is_a_whole_number_from_one_on(session: Session, limit: Any) -> None:
    for read in (session.get_active_path, session.build_context, session.build_context_entries):
        with pytest.raises(
            InvalidArgument, match=r"limit: .* is not a whole number >= 1; leave it out to read everything"
        ):
            await read(limit=limit)
