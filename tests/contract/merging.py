"""The contract: what two paths have in common, and what an append under a key gave."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, SessionNotFound
from tests.samples import UNKNOWN, add, new_session, talk, user


class MergingContract:
    """Common ancestors, and recalled appends."""

    async def test_the_common_ancestor_is_the_deepest_entry_of_both_paths(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        path = [entry.id for entry in (await backend.read_path(session.id)).entries or ()]
        await backend.move(session.id, path[1])
        (branch,) = await add(backend, session.id, user("branch"))
        fork = await backend.fork(session.id, path[2], NewSession())
        (forked,) = await add(backend, fork.id, user("fork"))
        fork_of_fork = await backend.fork(fork.id, forked, NewSession())
        await add(backend, fork_of_fork.id, *talk(2))

        async def common(leaf: str | None, other_id: str, other_leaf: str | None) -> str | None:
            there = await backend.common_ancestor(session.id, other_id, leaf=leaf, other_leaf=other_leaf)
            assert there == await backend.common_ancestor(other_id, session.id, leaf=other_leaf, other_leaf=leaf)
            return there

        assert await common(branch, session.id, path[3]) == path[1]
        assert await common(path[0], session.id, path[3]) == path[0]
        assert await common(path[3], session.id, path[3]) == path[3]
        assert await common(path[3], fork.id, forked) == path[2]
        assert await common(branch, fork.id, forked) == path[1]
        assert await backend.common_ancestor(session.id, fork_of_fork.id) == path[1]
        assert await backend.common_ancestor(fork.id, fork_of_fork.id) == forked
        assert await common(None, fork.id, forked) is None

    async def test_roots_of_their_own_and_other_trees_have_nothing_in_common(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first_root = session.leaf_id
        await backend.move(session.id, None)
        await add(backend, session.id, user("another root"))
        other = await new_session(backend, *talk(2))
        task = await backend.create_task(session.id, "t", NewSession())
        await add(backend, task.id, user())
        assert await backend.common_ancestor(session.id, session.id, other_leaf=first_root) is None
        assert await backend.common_ancestor(session.id, other.id) is None
        assert await backend.common_ancestor(session.id, other.id, leaf=first_root) is None
        assert await backend.common_ancestor(session.id, task.id) is None

    async def test_a_common_ancestor_is_asked_of_what_is_there(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        (theirs,) = await add(backend, fork.id, user())
        with pytest.raises(SessionNotFound):
            await backend.common_ancestor(UNKNOWN, session.id)
        with pytest.raises(SessionNotFound):
            await backend.common_ancestor(session.id, UNKNOWN)
        with pytest.raises(EntryNotFound):
            await backend.common_ancestor(session.id, fork.id, leaf=theirs)
        with pytest.raises(EntryNotFound):
            await backend.common_ancestor(fork.id, session.id, other_leaf=theirs)

    async def test_an_append_is_recalled_by_its_key(self, backend: Backend) -> None:
        session = await new_session(backend)
        first = await backend.append(session.id, talk(2), idempotency_key="a")
        await add(backend, session.id, user())
        await backend.fork(session.id, STORED, NewSession(), idempotency_key="b")
        assert await backend.recall_append(session.id, "a") == replace(first, replayed=True)
        assert await backend.recall_append(session.id, "b") is None
        assert await backend.recall_append(session.id, "c") is None
        with pytest.raises(SessionNotFound):
            await backend.recall_append(UNKNOWN, "a")
