"""The contract: forks, which copy nothing and share what lies before them."""

from __future__ import annotations

import pytest

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, SessionExists, SessionNotFound
from tests.checks import Refusals
from tests.samples import (
    UNKNOWN,
    add,
    compaction,
    context_of,
    new_session,
    path_ids,
    path_of,
    session_info,
    snapshot,
    talk,
    tree_ids,
    user,
)


class ForkContract:
    """Forks."""

    async def test_a_fork_ends_where_it_was_made_and_starts_at_revision_zero(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4), key="k", scope="user-7")
        path = await path_ids(backend, session.id)
        new = NewSession(key="forked", title="another try", metadata_text='{"a":1}', cwd="/x", scope="ignored")
        for at in (path[1], session.leaf_id, path[0]):
            fork = await backend.fork(session.id, at, NewSession())
            assert (fork.kind, fork.leaf_id, fork.revision, fork.scope) == ("fork", at, 0, "user-7")
            assert (fork.forked_from_session, fork.forked_from_entry) == (session.id, at)
            assert (fork.key, fork.title, fork.metadata_text) == (None, None, "{}")
            assert (fork.entry_count, fork.message_count, fork.spent_tokens) == (0, 0, 0)
            assert await backend.changes(fork.id, 0, 10) == []
        named = await backend.fork(session.id, STORED, new)
        assert (named.key, named.title, named.metadata_text, named.cwd) == ("forked", "another try", '{"a":1}', "/x")
        assert named == await backend.get_session_by_key("forked", "user-7")

    async def test_a_fork_shows_the_same_entries_and_the_same_context(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        second = (await path_ids(backend, session.id))[1]
        await add(backend, session.id, compaction(second), *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        assert await path_of(backend, fork.id) == await path_of(backend, session.id)
        assert await context_of(backend, fork.id) == await context_of(backend, session.id)
        assert await backend.read_tree(fork.id) == await path_of(backend, session.id)

    async def test_a_fork_at_the_stored_leaf_is_the_default_and_none_is_an_empty_one(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        stored = await backend.fork(session.id, STORED, NewSession())
        empty = await backend.fork(session.id, None, NewSession())
        assert stored.leaf_id == session.leaf_id
        assert (empty.leaf_id, empty.forked_from_entry) == (None, None)
        assert await tree_ids(backend, empty.id) == []
        (root,) = await add(backend, empty.id, user())
        assert await path_ids(backend, empty.id) == [root]
        assert root not in await tree_ids(backend, session.id)

    async def test_a_fork_of_an_empty_session_is_empty(self, backend: Backend) -> None:
        session = await new_session(backend)
        fork = await backend.fork(session.id, STORED, NewSession())
        assert (fork.kind, fork.leaf_id, fork.forked_from_session) == ("fork", None, session.id)

    async def test_a_fork_changes_nothing_about_its_source(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        before = await snapshot(backend, session.id)
        fork = await backend.fork(session.id, session.leaf_id, NewSession())
        await add(backend, fork.id, *talk(3))
        await backend.move(fork.id, None)
        await backend.set_label(fork.id, (await path_ids(backend, session.id))[0], "x")
        assert await snapshot(backend, session.id) == before

    async def test_neither_sees_what_the_other_adds_later(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        shared = await path_ids(backend, session.id)
        fork = await backend.fork(session.id, STORED, NewSession())
        mine = await add(backend, session.id, *talk(2))
        theirs = await add(backend, fork.id, *talk(2))
        assert await tree_ids(backend, session.id) == [*shared, *mine]
        assert await tree_ids(backend, fork.id) == [*shared, *theirs]
        assert await backend.get_entry(fork.id, mine[0]) is None
        assert await backend.get_entry(session.id, theirs[0]) is None
        for session_id, foreign in ((fork.id, mine[0]), (session.id, theirs[0])):
            with pytest.raises(EntryNotFound):
                await backend.read_path(session_id, leaf=foreign)

    async def test_a_fork_sees_its_line_and_no_siblings_of_it(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
        await backend.move(session.id, first)
        (sibling,) = await add(backend, session.id, user())
        fork = await backend.fork(session.id, second, NewSession())
        assert await tree_ids(backend, fork.id) == [first, second]
        for unseen in (third, sibling):
            assert await backend.get_entry(fork.id, unseen) is None
        aside = await backend.fork(session.id, third, NewSession())
        assert await path_ids(backend, aside.id) == [first, second, third]

    async def test_forks_of_forks_share_all_that_lies_before_them(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        expected = await path_ids(backend, session.id)
        current = session.id
        for number in range(12):
            fork = await backend.fork(current, STORED, NewSession())
            expected += await add(backend, fork.id, *talk(1 + number % 3))
            current = fork.id
        assert await path_ids(backend, current) == expected
        assert await tree_ids(backend, current) == expected
        assert [entry.depth for entry in await path_of(backend, current)] == list(range(len(expected)))
        middle = await backend.fork(current, expected[len(expected) // 2], NewSession())
        assert await path_ids(backend, middle.id) == expected[: len(expected) // 2 + 1]

    async def test_a_fork_at_what_the_session_does_not_see_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        (forked,) = await add(backend, fork.id, user())
        other = await new_session(backend, user())
        refusals = Refusals(backend)
        for at in (UNKNOWN, forked, other.leaf_id):
            async with refusals.refused(EntryNotFound):
                await backend.fork(session.id, at, NewSession())

    async def test_a_fork_with_a_taken_key_or_id_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2), key="k", scope="a")
        refusals = Refusals(backend)
        for new in (NewSession(key="k"), NewSession(id=session.id)):
            async with refusals.refused(SessionExists):
                await backend.fork(session.id, STORED, new)
        await backend.create_session(NewSession(key="elsewhere", scope="b"))
        assert (await backend.fork(session.id, STORED, NewSession(key="elsewhere"))).scope == "a"

    async def test_a_fork_of_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        refusals = Refusals(backend)
        for at in (STORED, None, UNKNOWN):
            async with refusals.refused(SessionNotFound):
                await backend.fork(UNKNOWN, at, NewSession())

    async def test_a_fork_below_a_branch_summary_lists_what_it_inherited_root_first(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        root = (await path_ids(backend, session.id))[0]
        await backend.move(session.id, root)
        (summary,) = await add(backend, session.id, NewEntry.branch_summary("tried", from_id=session.leaf_id))
        fork = await backend.fork(session.id, summary, NewSession())
        own = await add(backend, fork.id, *talk(1))
        await backend.move(fork.id, root)
        aside = await add(backend, fork.id, *talk(1))
        assert await tree_ids(backend, fork.id) == [root, summary, *own, *aside]

    async def test_a_task_sessions_history_can_be_forked(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        task = await backend.create_task(session.id, "t", NewSession())
        ids = await add(backend, task.id, *talk(3))
        fork = await backend.fork(task.id, ids[1], NewSession())
        assert fork.kind == "fork"
        assert await path_ids(backend, fork.id) == list(ids[:2])
        assert (await session_info(backend, task.id)).kind == "task"
