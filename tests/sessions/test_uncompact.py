"""Taking a compaction back: one layer at a time, with what was written since."""

from __future__ import annotations

import pytest

from flue_py import LeafConflict, Session, Store
from flue_py.compaction import CompactionSettings
from flue_py.core.context import project
from flue_py.core.json import JsonObject
from tests.sessions.talk import user

pytestmark = pytest.mark.anyio

SETTINGS = CompactionSettings(keep_recent_tokens=290)


async def talk(session: Session, count: int, start: int = 0) -> list[str]:
    asked = [user(f"question {number} " + "q" * 200) for number in range(start, start + count)]
    return list((await session.append_messages(asked)).entry_ids)


async def compacted(session: Session) -> str:
    done = await session.compact(mode="window", settings=SETTINGS)
    assert done.entry_id is not None
    return done.entry_id


async def assert_all_reads_agree(session: Session) -> None:
    """Every way to read the context says the same, and so does the projection of the whole path."""
    whole = await session.build_context()
    entries = await session.build_context_entries()
    assert [item.data for item in entries] == whole
    assert [item.data for item in project(await session.get_active_path())] == whole
    assert await session.build_context(leaf=session.leaf_id) == whole
    assert await session.build_context(limit=1000) == whole
    assert await session.build_context(limit=2) == whole[-2:]


async def test_uncompacting_restores_the_earlier_bytes(session: Session) -> None:
    await talk(session, 12)
    before = await session.build_context()
    compaction = await compacted(session)

    done = await session.compactions.uncompact()

    assert done is not None
    assert (done.compaction_id, done.restored_id) == (compaction, None)
    assert done.appended.entry_ids == (session.leaf_id,)
    assert done.tokens_after > done.tokens_before
    assert await session.build_context() == before
    assert await session.compactions.latest() is None
    await assert_all_reads_agree(session)


async def test_what_was_written_since_stays_after_what_comes_back(session: Session) -> None:
    await talk(session, 12)
    before = await session.build_context()
    await compacted(session)
    await talk(session, 2, start=12)
    since = (await session.build_context())[-2:]
    await session.compactions.uncompact()
    assert await session.build_context() == before + since
    await assert_all_reads_agree(session)


async def test_layers_are_peeled_off_one_by_one(session: Session) -> None:
    pinned = (await talk(session, 12))[1]
    await session.marks.pin(pinned)
    contexts: list[list[JsonObject]] = []
    layers = []
    for number in range(3):
        contexts.append(await session.build_context())
        layers.append(await compacted(session))
        await assert_all_reads_agree(session)
        await talk(session, 4, start=12 + 4 * number)
    for number in (2, 1, 0):
        done = await session.compactions.uncompact()
        assert done is not None
        assert (done.compaction_id, done.restored_id) == (layers[number], layers[number - 1] if number else None)
        context = await session.build_context()
        assert context[: len(contexts[number])] == contexts[number]
        assert len(context) == len(contexts[number]) + 4 * (3 - number)
        await assert_all_reads_agree(session)
    assert await session.compactions.uncompact() is None
    assert "question 23 " in str((await session.build_context())[-1])


async def test_a_session_is_compacted_again_after_uncompacting(session: Session) -> None:
    await talk(session, 12)
    first = await compacted(session)
    await session.compactions.uncompact()
    again = await compacted(session)
    assert again != first
    assert len(await session.build_context()) == 5
    done = await session.compactions.uncompact()
    assert done is not None
    assert (done.compaction_id, done.restored_id) == (again, None)
    assert len(await session.build_context()) == 12
    await assert_all_reads_agree(session)


async def test_uncompacting_can_be_undone_and_is_told_from_the_leaf(session: Session, store: Store) -> None:
    ids = await talk(session, 12)
    compaction = await compacted(session)
    small = await session.build_context()
    await session.compactions.uncompact()
    fork = await session.fork()
    await session.undo()
    assert await session.build_context() == small
    assert len(await fork.build_context()) == 12
    assert await fork.build_context(leaf=compaction) == small
    await fork.move_leaf(to=ids[4])
    assert await fork.compactions.uncompact() is None


async def test_nothing_is_appended_where_the_session_has_gone_on(session: Session, store: Store) -> None:
    await talk(session, 12)
    await compacted(session)
    other = await store.get_session(session.id)
    assert other is not None
    await talk(other, 1, start=12)
    with pytest.raises(LeafConflict):
        await session.compactions.uncompact(expected_leaf=session.leaf_id)
    assert await session.compactions.latest() is not None
