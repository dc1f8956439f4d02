"""The contract: the end of a path and of a context, which is whole exchanges, wherever it begins."""

from __future__ import annotations

import pytest

from flue_py.core.entries import NewEntry, Pairing, messages_of
from flue_py.core.sessions import STORED, LeafChoice, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, SessionNotFound
from tests.samples import (
    UNKNOWN,
    add,
    call,
    compaction,
    context_of,
    entries_of,
    ids_of,
    new_session,
    path_ids,
    path_of,
    result,
    session_info,
    talk,
    tree_ids,
    user,
)


async def end_ids(backend: Backend, session_id: str, limit: int, leaf: LeafChoice = STORED) -> list[str]:
    """Return the ids of the end of a path."""
    return ids_of(entries_of(await backend.read_path_end(session_id, limit, leaf=leaf)))


async def assert_ends_are_whole(backend: Backend, session_id: str) -> None:
    """Check the end of the path and of the context to every entry, with every limit that differs."""
    for leaf in (STORED, None, *await tree_ids(backend, session_id)):
        path = await path_of(backend, session_id, leaf)
        context = await context_of(backend, session_id, leaf)
        for limit in (*range(1, max(len(path), len(context)) + 2), 10_000_000_000):
            end = entries_of(await backend.read_path_end(session_id, limit, leaf=leaf))
            start = len(path) - len(end)
            assert (end, start) == (path[start:], _start(Pairing(messages_of(path)), len(path), limit))
            last = (await backend.read_context_end(session_id, limit, leaf=leaf)).items
            start = len(context) - len(last)
            assert [(item.entry_id, item.data) for item in last] == context[start:]
            assert start == _start(Pairing([data for _, data in context]), len(context), limit)


def _start(pairing: Pairing, length: int, limit: int) -> int:
    """Return where an end begins: as early as the limit allows, without a result whose call is before it."""
    starts: list[int] = [*range(max(length - limit, 0), length), *range(length - limit, 0, -1)]
    for start in starts:
        if not any(found and call.at < start <= max(found) for call, found in pairing.results.items()):
            return start
    return 0


class EndContract:
    """Reading the end of a path or a context."""

    async def test_the_end_of_a_path_is_its_last_entries(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(7))
        ids = await path_ids(backend, session.id)
        assert await end_ids(backend, session.id, 1) == ids[-1:]
        assert await end_ids(backend, session.id, 3) == ids[-3:]
        assert await end_ids(backend, session.id, 7) == ids
        assert await end_ids(backend, session.id, 8) == ids
        assert await end_ids(backend, session.id, 2, ids[3]) == ids[2:4]
        assert await end_ids(backend, session.id, 2, None) == []
        await backend.move(session.id, ids[2])
        (sibling,) = await add(backend, session.id, user())
        assert await end_ids(backend, session.id, 2) == [ids[2], sibling]
        assert await end_ids(backend, session.id, 2, ids[-1]) == ids[-2:]
        await assert_ends_are_whole(backend, session.id)

    async def test_the_end_of_an_empty_session_is_empty(self, backend: Backend) -> None:
        session = await new_session(backend)
        assert await end_ids(backend, session.id, 5) == []
        assert list((await backend.read_context_end(session.id, 5)).items) == []

    async def test_the_end_of_a_read_says_which_state_it_read(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        first, *_ = await path_ids(backend, session.id)
        info = await session_info(backend, session.id)
        whole = await backend.read_path(session.id)
        end = await backend.read_path_end(session.id, 1)
        assert (end.leaf_id, end.stored_leaf_id, end.revision, end.stamp) == (
            whole.leaf_id, whole.stored_leaf_id, whole.revision, whole.stamp,
        )  # fmt: skip
        context = await backend.read_context_end(session.id, 1, leaf=first)
        assert (context.leaf_id, context.stored_leaf_id, context.revision) == (first, info.leaf_id, info.revision)

    async def test_an_end_never_takes_a_result_without_its_call(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(1), call("a", "b"), result("b"), result("a"), *talk(2))
        ids = await path_ids(backend, session.id)
        for limit, count in ((1, 1), (2, 2), (3, 2), (4, 2), (5, 5), (6, 6)):
            assert await end_ids(backend, session.id, limit) == ids[-count:]
        await assert_ends_are_whole(backend, session.id)

    async def test_a_last_exchange_that_is_longer_than_the_limit_is_read_whole(self, backend: Backend) -> None:
        called = [f"c{number}" for number in range(30)]
        session = await new_session(backend, *talk(2), call(*called), *(result(each) for each in called))
        ids = await path_ids(backend, session.id)
        for limit in (1, 2, 30):
            assert await end_ids(backend, session.id, limit) == ids[-31:]
        assert await end_ids(backend, session.id, 31) == ids[-31:]
        assert await end_ids(backend, session.id, 32) == ids[-32:]

    async def test_a_late_result_reaches_back_to_its_call_only_where_it_is_the_end(self, backend: Backend) -> None:
        session = await new_session(backend, user(), call("late"), *talk(40), result("late"))
        ids = await path_ids(backend, session.id)
        assert await end_ids(backend, session.id, 5) == ids[1:]
        more = await add(backend, session.id, *talk(3))
        assert await end_ids(backend, session.id, 5) == list(more)

    async def test_a_result_without_a_call_is_an_exchange_of_its_own(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(9), result("lost"), *talk(2), call("a"), result("a"), result("a"))
        await assert_ends_are_whole(backend, session.id)
        ids = await path_ids(backend, session.id)
        assert await end_ids(backend, session.id, 6) == ids[-6:]
        assert await end_ids(backend, session.id, 2) == ids[-3:]

    async def test_an_id_that_is_called_by_again_is_another_call(self, backend: Backend) -> None:
        session = await new_session(backend, call("a"), result("a"), user(), call("a"), result("a"), *talk(1))
        await assert_ends_are_whole(backend, session.id)

    async def test_an_end_crosses_forks(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3), call("a", "b"), result("a"))
        current = session.id
        for number in range(4):
            fork = await backend.fork(current, STORED, NewSession())
            await add(backend, fork.id, *([result("b")] if number == 1 else talk(1, number)))
            current = fork.id
        await add(backend, session.id, *talk(5))
        await assert_ends_are_whole(backend, current)
        await backend.delete_tree(session.id)
        await assert_ends_are_whole(backend, current)

    async def test_the_end_of_a_context_leaves_out_the_summary_unless_everything_fits(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids = await add(backend, session.id, *talk(6))
        (summary,) = await add(backend, session.id, compaction(ids[3]))
        after = await add(backend, session.id, *talk(2))
        kept = [*ids[3:], *after]

        async def end(limit: int) -> list[str]:
            return [item.entry_id for item in (await backend.read_context_end(session.id, limit)).items]

        assert await end(1) == kept[-1:]
        assert await end(4) == kept[-4:]
        assert await end(5) == kept
        assert await end(6) == [summary, *kept]
        assert await end(60) == [summary, *kept]
        await assert_ends_are_whole(backend, session.id)

    async def test_the_end_of_a_context_is_the_end_of_the_whole_one(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids = await add(
            backend, session.id, *talk(2), call("a", "b"), result("a"), result("b"), *talk(4), user("pinned")
        )
        await backend.set_pin(session.id, ids[3], True)
        await backend.set_pin(session.id, ids[-1], True)
        notes = [NewEntry.custom("note", number) for number in range(6)]
        more = await add(backend, session.id, *notes, NewEntry.branch_summary("elsewhere", from_id=None), call("c"))
        await add(
            backend, session.id, compaction(ids[6]), result("c"), compaction(ids[7]), *notes, *talk(2), result("b")
        )
        await add(
            backend, session.id, NewEntry.exclusion(more[-1]), NewEntry.exclusion(ids[8], 0), call("a"), result("a")
        )
        await backend.append(session.id, [NewEntry.exclusion(ids[-1]), *talk(1)])
        await assert_ends_are_whole(backend, session.id)

    async def test_what_is_excluded_is_not_counted_nor_are_results_of_what_is(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids = await add(backend, session.id, *talk(2), call("a"), user("between"), result("a"), *talk(2))
        await add(backend, session.id, NewEntry.exclusion(ids[2]), NewEntry.exclusion(ids[5]))
        items = (await backend.read_context_end(session.id, 2)).items
        assert [item.entry_id for item in items] == [ids[3], ids[6]]
        await assert_ends_are_whole(backend, session.id)

    async def test_what_is_retracted_is_no_end(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        *ids, leaf = await path_ids(backend, session.id)
        fork = await backend.fork(session.id, leaf, NewSession())
        await backend.retract(session.id, leaf)
        assert await end_ids(backend, session.id, 2) == ids[-2:]
        assert await end_ids(backend, fork.id, 2) == [ids[-1], leaf]
        with pytest.raises(EntryNotFound):
            await backend.read_path_end(session.id, 2, leaf=leaf)

    async def test_an_end_of_what_is_not_there_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        for read in (backend.read_path_end, backend.read_context_end):
            with pytest.raises(SessionNotFound):
                await read(UNKNOWN, 1)
            with pytest.raises(EntryNotFound):
                await read(session.id, 1, leaf=UNKNOWN)
