"""A store refuses what is beyond its limits, and nothing changes."""

from __future__ import annotations

import pytest

import flue_py
from flue_py.core.entries import NewEntry
from flue_py.errors import InvalidArgument, InvalidEntry, TaskDepthExceeded
from tests.sessions.conftest import also_in_memory

pytestmark = pytest.mark.anyio

TIGHT = flue_py.Limits(entry_bytes=200, batch_entries=2, metadata_bytes=50, task_depth=1, sessions_per_page=2)
SHORT = {"role": "user", "content": "short"}
LONG = {"role": "user", "content": "x" * 200}


@also_in_memory
async def test_limits_are_those_the_store_was_opened_with(target: str) -> None:
    async with flue_py.open(target) as store:
        assert store.limits == flue_py.Limits()
        session = await store.create_session()
        await session.append_message(LONG)
        await session.set_metadata({"note": "x" * 50})
    async with flue_py.open(target, limits=TIGHT) as store:
        assert store.limits == TIGHT
        if target != ":memory:":
            # What is there is read, whatever its size.
            found = await store.get_session(session.id)
            assert found is not None
            assert await found.build_context() == [LONG]


async def test_what_is_beyond_a_limit_is_refused_and_changes_nothing(target: str) -> None:
    async with flue_py.open(target, limits=TIGHT) as store:
        session = await store.create_session(metadata={"a": 1})
        await session.append_messages([SHORT, SHORT])
        fork = await session.fork()
        for handle in (session, fork):
            await handle.set_metadata({"note": "x" * 30})
            before = await handle.refresh()
            with pytest.raises(InvalidEntry, match="entry_bytes"):
                await handle.append_message(LONG)
            with pytest.raises(InvalidEntry, match="entry 1 of 2"):
                await handle.append_messages([SHORT, LONG])
            with pytest.raises(InvalidEntry, match="batch_entries"):
                await handle.append_messages([SHORT] * 3)
            with pytest.raises(InvalidEntry, match="batch_entries"):
                await handle.import_entries([NewEntry.custom("note", None)] * 3, leaf=None)
            with pytest.raises(InvalidArgument, match="metadata_bytes"):
                await handle.set_metadata({"note": "x" * 50})
            with pytest.raises(InvalidArgument, match="metadata_bytes"):
                await handle.set_metadata({"more": "x" * 20}, merge=True)
            with pytest.raises(InvalidArgument, match="metadata_bytes"):
                await handle.fork(metadata={"note": "x" * 50})
            after = await handle.refresh()
            assert after == before
        with pytest.raises(InvalidArgument, match="metadata_bytes"):
            await store.create_session(metadata={"note": "x" * 50})
        with pytest.raises(InvalidEntry, match="batch_entries"):
            await store.import_session(flue_py.NewSession(), [NewEntry.custom("note", None)] * 3, leaf=None)
        with pytest.raises(InvalidArgument, match="from 1 to 2"):
            await store.list_sessions(limit=3)
        assert len((await store.list_sessions(limit=2)).sessions) == 2
        assert (await store.verify()).problems == []


async def test_a_task_may_be_as_deep_as_the_limit_says(target: str) -> None:
    deep = flue_py.Limits(task_depth=6)
    async with flue_py.open(target, limits=deep) as store:
        session = await store.create_session()
        for depth in range(1, 7):
            session = await session.tasks.create(task_id="t")
            assert session.metadata["depth"] == depth
        with pytest.raises(TaskDepthExceeded, match="6"):
            await session.tasks.create(task_id="t")


async def test_what_is_no_limits_is_refused(target: str) -> None:
    with pytest.raises(InvalidArgument, match="limits"):
        async with flue_py.open(target, limits={"entry_bytes": 5}):  # type: ignore[arg-type]
            pass
