"""The contract: large messages, deep paths, many forks."""

from __future__ import annotations

import pytest

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from tests.samples import (
    add,
    assistant,
    compaction,
    context_of,
    new_session,
    path_ids,
    path_of,
    session_info,
    talk,
    tree_ids,
    user,
)


class SizeContract:
    """Size."""

    @pytest.mark.parametrize("unit", ["x", "é\0🚨", '"\\'])
    async def test_a_message_of_a_megabyte_comes_back_as_it_was(self, backend: Backend, unit: str) -> None:
        text = unit * (1_000_000 // len(unit.encode()))
        new = user(text)
        session = await new_session(backend, user("small"), new, user("small"))
        fork = await backend.fork(session.id, STORED, NewSession())
        for session_id in (session.id, fork.id):
            entry = (await path_of(backend, session_id))[1]
            assert entry.payload == new.payload
            assert entry.fields["content"] == text
        await backend.delete_tree(session.id)
        assert (await path_of(backend, fork.id))[1].payload == new.payload

    async def test_the_same_large_payload_may_be_stored_many_times_and_deleted_bit_by_bit(
        self, backend: Backend
    ) -> None:
        large = NewEntry.custom("artifact", "0123456789abcdef" * 8_000)
        session = await new_session(backend, large, large)
        fork = await backend.fork(session.id, (await path_ids(backend, session.id))[0], NewSession())
        await add(backend, fork.id, large)
        other = await new_session(backend, large)
        await backend.delete_tree(session.id)
        assert {entry.payload for entry in await path_of(backend, fork.id)} == {large.payload}
        await backend.delete_tree(other.id)
        assert [entry.payload for entry in await backend.read_tree(fork.id)] == [large.payload] * 2

    async def test_a_path_of_five_thousand_entries_reads_like_a_short_one(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids: list[str] = []
        for start in range(0, 5_000, 1_000):
            ids += await add(backend, session.id, *talk(1_000, start))
        path = await path_of(backend, session.id)
        assert [entry.id for entry in path] == ids
        assert path[-1].depth == 4_999
        assert await backend.is_ancestor(session.id, ids[0], ids[-1])
        window = await backend.read_usage(session.id, ids[99])
        assert window.usage.total_tokens == 10 * 2_450
        (cut,) = await add(backend, session.id, compaction(ids[-2]))
        assert [entry_id for entry_id, _ in await context_of(backend, session.id)] == [cut, *ids[-2:]]
        fork = await backend.fork(session.id, ids[2_500], NewSession())
        deletion = await backend.delete_tree(session.id)
        assert (deletion.entries_deleted, deletion.entries_kept) == (2_500, 2_501)
        assert await path_ids(backend, fork.id) == ids[:2_501]

    @pytest.mark.parametrize("forks", [500, pytest.param(10_000, marks=pytest.mark.slow)])
    async def test_many_forks_on_one_path_change_nothing_about_it(self, backend: Backend, forks: int) -> None:
        session = await new_session(backend)
        ids = await add(backend, session.id, *talk(50))
        made = [await backend.fork(session.id, ids[number % 50], NewSession()) for number in range(forks)]
        for fork in made[:: forks // 10]:
            await add(backend, fork.id, assistant(tokens=1))
        assert await path_ids(backend, session.id) == list(ids)
        assert await tree_ids(backend, session.id) == list(ids)
        assert (await backend.read_usage(session.id, None)).usage.total_tokens == 250
        assert (await backend.info()).sessions == forks + 1
        deletion = await backend.delete_tree(session.id)
        assert (deletion.entries_deleted, deletion.entries_kept) == (0, 50)
        assert await path_ids(backend, made[49].id) == list(ids)

    @pytest.mark.parametrize("forks", [200, pytest.param(2_000, marks=pytest.mark.slow)])
    async def test_a_path_with_a_fork_at_every_entry_is_still_one_path(self, backend: Backend, forks: int) -> None:
        session = await new_session(backend, assistant(tokens=1))
        current, path = session, await path_ids(backend, session.id)
        for _ in range(forks):
            current = await backend.fork(current.id, STORED, NewSession())
            path += await add(backend, current.id, assistant(tokens=1))
        assert await path_ids(backend, current.id) == path
        assert (await backend.read_usage(current.id, path[0])).usage.total_tokens == forks
        assert await backend.is_ancestor(current.id, path[0], path[-1])
        assert [entry.depth for entry in await backend.read_tree(current.id)] == list(range(forks + 1))
        deletion = await backend.delete_tree(session.id)
        assert (deletion.entries_deleted, deletion.entries_kept) == (0, 1)
        assert await path_ids(backend, current.id) == path

    async def test_a_session_with_many_siblings_at_one_entry_keeps_them_all(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        root = session.leaf_id
        children: list[str] = []
        for _ in range(100):
            await backend.move(session.id, root)
            children += await add(backend, session.id, user())
        assert await tree_ids(backend, session.id) == [root, *children]
        for child in children[::20]:
            assert await path_ids(backend, session.id, child) == [root, child]
        assert (await session_info(backend, session.id)).entry_count == 101
