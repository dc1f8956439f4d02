"""The end of a path and of a context: what a handle takes, what it notes, and the blocking twin."""

from __future__ import annotations

from typing import Any

import pytest

import flue_py.sync
from flue_py import InvalidArgument, Session
from flue_py.core.json import JsonObject
from tests.sessions.talk import assistant, hold_turns, texts, user
from tests.tables import inputs

CALL: JsonObject = {"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "ls", "arguments": {}}]}
RESULT: JsonObject = {"role": "toolResult", "toolCallId": "c", "toolName": "ls", "content": [], "isError": False}


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
async def test_a_result_stays_with_its_call(session: Session) -> None:
    await session.append_messages([user("U"), CALL, RESULT, assistant("A")])
    roles = [[entry.role for entry in await session.get_active_path(limit=limit)] for limit in (1, 2, 3, 4)]
    assert roles == [
        ["assistant"],
        ["assistant"],
        ["assistant", "toolResult", "assistant"],
        ["user", "assistant", "toolResult", "assistant"],
    ]
    assert [len(await session.build_context(limit=limit)) for limit in (1, 2, 3, 4)] == [1, 1, 3, 4]


@pytest.mark.anyio
async def test_reading_the_end_of_the_context_takes_over_the_stored_leaf(
    session: Session, store: flue_py.Store
) -> None:
    await hold_turns(session, 2)
    for read in ("build_context", "build_context_entries"):
        other = await store.open_session(session.key, scope=session.scope)
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


def test_the_blocking_twin_reads_the_end_alike() -> None:
    with flue_py.sync.open(":memory:") as store:
        session = store.create_session(key="k")
        session.append_messages([user("one"), assistant("two"), user("three")])
        assert texts(session.get_active_path(limit=2)) == ["two", "three"]
        assert session.build_context(limit=1) == session.build_context()[-1:]
        assert [item.entry.id for item in session.build_context_entries(limit=1)] == [session.leaf_id]
