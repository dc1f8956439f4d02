"""The contract: paths, contexts, look-ups and the change feed."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest
from anyio.lowlevel import checkpoint

from flue_py.core.context import project
from flue_py.core.entries import NewEntry
from flue_py.core.ledger import NewBudget
from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, SessionNotFound
from tests.samples import (
    UNKNOWN,
    add,
    assistant,
    compaction,
    context_of,
    entries_of,
    ids_of,
    new_session,
    path_ids,
    path_of,
    placed,
    session_info,
    talk,
    tree_ids,
    user,
)
from tests.sources import OpenBackend, counted_sources

PATIENCE_SECONDS = 30
"""How long a watcher may be left waiting: a lost notification fails its test instead of hanging it."""


async def assert_context_is_the_projection_of_the_path(backend: Backend, session_id: str) -> None:
    """Check every entry the session sees as a leaf."""
    for leaf in (STORED, None, *await tree_ids(backend, session_id)):
        expected = [(item.entry_id, item.data) for item in project(await path_of(backend, session_id, leaf))]
        assert await context_of(backend, session_id, leaf) == expected


class ReadContract:
    """Reading."""

    # -- paths ----------------------------------------------------------------------------------------------------

    async def test_a_path_is_read_at_the_stored_leaf_or_at_any_entry_the_session_sees(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
        await backend.move(session.id, first)
        (sibling,) = await add(backend, session.id, user())
        assert await path_ids(backend, session.id) == [first, sibling]
        assert await path_ids(backend, session.id, third) == [first, second, third]
        assert await path_ids(backend, session.id, first) == [first]
        assert await path_ids(backend, session.id, None) == []

    async def test_a_read_says_which_state_it_read(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second = await add(backend, session.id, *talk(2))
        stored = await backend.read_path(session.id)
        older = await backend.read_path(session.id, leaf=first)
        since = await backend.read_path_since(session.id, first)
        context = await backend.read_context(session.id, leaf=first)
        assert (stored.leaf_id, stored.stored_leaf_id, stored.revision) == (second, second, 1)
        assert (older.leaf_id, older.stored_leaf_id, older.revision) == (first, second, 1)
        assert (since.leaf_id, since.stored_leaf_id, since.revision) == (second, second, 1)
        assert (context.leaf_id, context.stored_leaf_id, context.revision) == (first, second, 1)

    async def test_the_path_of_an_empty_session_is_empty(self, backend: Backend) -> None:
        session = await new_session(backend)
        for read in (
            await backend.read_path(session.id),
            await backend.read_context(session.id),
            await backend.read_path_since(session.id, None),
        ):
            assert (read.leaf_id, read.stored_leaf_id, read.revision) == (None, None, 0)
            assert list(entries_of(read)) == []
            assert read.compaction is None
        assert await backend.read_tree(session.id) == []
        assert await backend.read_turns(session.id) == []

    async def test_a_read_is_spared_while_its_stamp_holds(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        older = (await path_ids(backend, session.id))[0]
        for read in (backend.read_path, backend.read_context):
            stamp = (await read(session.id)).stamp
            again = await read(session.id, unless=stamp)
            assert again.entries is None
            assert (again.leaf_id, again.stamp) == (session.leaf_id, stamp)
            assert (await read(session.id, leaf=session.leaf_id, unless=stamp)).entries is None
            assert (await read(session.id, leaf=older, unless=stamp)).entries is not None
            await backend.set_label(session.id, older, "other")
            assert (await read(session.id, unless=stamp)).stored_leaf_id == session.leaf_id
            (leaf,) = await add(backend, session.id, user())
            changed = await read(session.id, unless=stamp)
            assert entries_of(changed)[-1].id == leaf
            assert (await read(session.id, unless=changed.stamp)).entries is None
            await backend.undo(session.id)
            assert (await read(session.id, unless=stamp)).entries is None

    async def test_the_path_since_an_entry_is_what_follows_it(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
        await backend.move(session.id, first)
        (sibling,) = await add(backend, session.id, user())
        await backend.move(session.id, third)

        async def since(anchor: str | None, leaf: str | None = third) -> list[str]:
            return ids_of(entries_of(await backend.read_path_since(session.id, anchor, leaf=leaf)))

        assert await since(None) == [first, second, third]
        assert await since(first) == [second, third]
        assert await since(third) == []
        assert await since(sibling) == []
        assert await since(UNKNOWN) == []
        assert await since(third, second) == []
        assert await since(first, sibling) == [sibling]
        assert await since(None, None) == []
        assert await since(first, None) == []

    async def test_the_path_since_an_inherited_entry_crosses_the_fork(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
        fork = await backend.fork(session.id, second, NewSession())
        own = await add(backend, fork.id, *talk(2))
        assert ids_of(entries_of(await backend.read_path_since(fork.id, first))) == [second, *own]
        assert ids_of(entries_of(await backend.read_path_since(fork.id, own[0]))) == [own[1]]
        assert ids_of(entries_of(await backend.read_path_since(fork.id, third))) == []

    @pytest.mark.parametrize("leaf", ["unknown", "another tree", "the fork of it"])
    async def test_a_read_at_what_the_session_does_not_see_is_refused(self, backend: Backend, leaf: str) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        elsewhere = {
            "unknown": UNKNOWN,
            "another tree": (await new_session(backend, user())).leaf_id,
            "the fork of it": (await add(backend, fork.id, user()))[0],
        }
        at = elsewhere[leaf]
        for read in (backend.read_path, backend.read_context, backend.read_turns):
            with pytest.raises(EntryNotFound):
                await read(session.id, leaf=at)
        with pytest.raises(EntryNotFound):
            await backend.read_path_since(session.id, None, leaf=at)
        with pytest.raises(EntryNotFound):
            await backend.read_usage(session.id, None, leaf=at)

    async def test_reads_of_a_session_that_is_not_there_are_refused(self, backend: Backend) -> None:
        await new_session(backend, user())
        for read in (backend.read_path, backend.read_context, backend.read_turns, backend.read_tree):
            with pytest.raises(SessionNotFound):
                await read(UNKNOWN)
        with pytest.raises(SessionNotFound):
            await backend.read_path_since(UNKNOWN, None)
        with pytest.raises(SessionNotFound):
            await backend.read_usage(UNKNOWN, None)
        with pytest.raises(SessionNotFound):
            await backend.get_entry(UNKNOWN, UNKNOWN)
        with pytest.raises(SessionNotFound):
            await backend.match_entry_ids(UNKNOWN, "")
        with pytest.raises(SessionNotFound):
            await backend.is_ancestor(UNKNOWN, UNKNOWN, UNKNOWN)
        with pytest.raises(SessionNotFound):
            await backend.changes(UNKNOWN, 0, 10)
        with pytest.raises(SessionNotFound):
            await backend.read_marks(UNKNOWN)

    # -- contexts -------------------------------------------------------------------------------------------------

    async def test_without_a_compaction_the_context_is_every_message_and_summary(self, backend: Backend) -> None:
        session = await new_session(
            backend,
            *talk(2),
            NewEntry.custom("model_change", {"model": "x"}),
            NewEntry.branch_summary("tried", from_id=None),
            NewEntry.custom("custom_message", {"content": "note"}),
            *talk(1),
        )
        read = await backend.read_context(session.id)
        assert read.compaction is None
        assert [item[1]["role"] for item in await context_of(backend, session.id)] == [
            "user", "assistant", "user", "user", "user",
        ]  # fmt: skip
        await assert_context_is_the_projection_of_the_path(backend, session.id)

    async def test_with_a_compaction_the_context_is_its_summary_and_what_is_kept(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids = await add(backend, session.id, *talk(6))
        (cut,) = await add(backend, session.id, compaction(ids[4], "summary"))
        later = await add(backend, session.id, *talk(2))
        context = await context_of(backend, session.id)
        assert [entry_id for entry_id, _ in context] == [cut, ids[4], ids[5], *later]
        read = await backend.read_context(session.id)
        assert read.compaction is not None
        assert read.compaction.id == cut
        await assert_context_is_the_projection_of_the_path(backend, session.id)

    async def test_the_context_is_read_from_the_first_kept_entry_on(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(6))
        path = await path_ids(backend, session.id)
        (summary,) = await add(backend, session.id, compaction(path[4]))
        (last,) = await add(backend, session.id, user())
        read = await backend.read_context(session.id)
        assert ids_of(entries_of(read)) == [*path[4:], summary, last]
        assert read.compaction == entries_of(read)[2]
        assert ids_of(entries_of(await backend.read_context(session.id, leaf=path[5]))) == path

    async def test_the_latest_compaction_on_the_path_counts(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids = await add(backend, session.id, *talk(4))
        (one,) = await add(backend, session.id, compaction(ids[2], "one"))
        more = await add(backend, session.id, *talk(3))
        (two,) = await add(backend, session.id, compaction(ids[3], "two"))
        await add(backend, session.id, *talk(2))
        context = [entry_id for entry_id, _ in await context_of(backend, session.id)]
        assert context[:5] == [two, ids[3], *more]
        assert one not in context
        await backend.move(session.id, more[0])
        assert [entry_id for entry_id, _ in await context_of(backend, session.id)] == [one, ids[2], ids[3], more[0]]
        await backend.move(session.id, ids[2])
        await add(backend, session.id, user())
        assert (await backend.read_context(session.id)).compaction is None
        await assert_context_is_the_projection_of_the_path(backend, session.id)

    async def test_a_compaction_that_keeps_from_off_the_path_keeps_nothing_before_it(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second = await add(backend, session.id, *talk(2))
        await backend.move(session.id, first)
        cut, after = await add(backend, session.id, compaction(second), user())
        assert [entry_id for entry_id, _ in await context_of(backend, session.id)] == [cut, after]
        await assert_context_is_the_projection_of_the_path(backend, session.id)

    async def test_a_compaction_that_keeps_from_below_itself_keeps_nothing_before_it(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, cut, below = await add(
            backend, session.id, user(), placed(NewEntry.custom("note", 1), "note"), placed(user(), "below")
        )
        await backend.import_entries(
            session.id,
            [placed(compaction("below"), "cut", first), placed(user(), "child", "cut")],
            leaf="child",
        )
        assert [entry_id for entry_id, _ in await context_of(backend, session.id)] == ["cut", "child"]
        assert {cut, below} == {"note", "below"}
        await assert_context_is_the_projection_of_the_path(backend, session.id)

    async def test_a_fork_projects_across_its_fork_points(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids = await add(backend, session.id, *talk(4))
        await add(backend, session.id, compaction(ids[1]), *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, *talk(2))
        assert (await context_of(backend, fork.id))[:4] == (await context_of(backend, session.id))[:4]
        other = await backend.fork(fork.id, STORED, NewSession())
        await add(backend, other.id, compaction(ids[3]), *talk(1))
        context = [entry_id for entry_id, _ in await context_of(backend, other.id)]
        assert context[1] == ids[3]
        for session_id in (session.id, fork.id, other.id):
            await assert_context_is_the_projection_of_the_path(backend, session_id)

    async def test_the_same_leaf_gives_the_same_bytes(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(5))
        leaf = (await add(backend, session.id, user("é\u0000🚨", zeta=1, alpha=None)))[0]
        before = [entry.payload for entry in await path_of(backend, session.id, leaf)]
        await add(backend, session.id, compaction(leaf), *talk(3))
        fork = await backend.fork(session.id, leaf, NewSession())
        assert [entry.payload for entry in await path_of(backend, session.id, leaf)] == before
        assert [entry.payload for entry in await path_of(backend, fork.id)] == before

    # -- single entries -------------------------------------------------------------------------------------------

    async def test_turns_are_the_user_messages_of_the_path(self, backend: Backend) -> None:
        session = await new_session(backend)
        one, _, _, two, cut, three = await add(
            backend,
            session.id,
            user("one"),
            assistant(),
            NewEntry.custom("custom_message", {"content": "x"}),
            user("two"),
            placed(NewEntry.branch_summary("x", from_id=None), "summary"),
            user("three"),
        )
        assert ids_of(await backend.read_turns(session.id)) == [one, two, three]
        assert ids_of(await backend.read_turns(session.id, leaf=cut)) == [one, two]
        assert await backend.read_turns(session.id, leaf=None) == []
        fork = await backend.fork(session.id, cut, NewSession())
        (four,) = await add(backend, fork.id, user("four"))
        assert ids_of(await backend.read_turns(fork.id)) == [one, two, four]

    async def test_what_a_program_wrote_for_the_user_begins_no_turn(self, backend: Backend) -> None:
        session = await new_session(backend)
        said, _ = await add(backend, session.id, user("said"), user("noted", isMeta=True))
        assert ids_of(await backend.read_turns(session.id)) == [said]

    async def test_the_tree_lists_what_it_inherited_root_first(self, backend: Backend) -> None:
        chain = [placed(user(), "c"), placed(user(), "b", "c"), placed(user(), "a", "b")]
        session = await backend.import_session(NewSession(), chain, leaf="a")
        fork = await backend.fork(session.id, STORED, NewSession())
        (own,) = await add(backend, fork.id, user())
        assert await tree_ids(backend, fork.id) == ["c", "b", "a", own]

    async def test_the_tree_lists_own_entries_as_they_were_added(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second = await add(backend, session.id, *talk(2))
        (branch,) = (await backend.append(session.id, [user()], expected=first, on_conflict="branch")).entry_ids
        await backend.move(session.id, None)
        (root,) = await add(backend, session.id, user())
        await backend.import_entries(session.id, [placed(user(), "z", branch), placed(user(), "a", second)], leaf="a")
        assert await tree_ids(backend, session.id) == [first, second, branch, root, "z", "a"]

    async def test_an_entry_is_found_by_id_if_the_session_sees_it(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        path = await path_of(backend, session.id)
        fork = await backend.fork(session.id, path[1].id, NewSession())
        assert [await backend.get_entry(session.id, entry.id) for entry in path] == path
        assert await backend.get_entry(fork.id, path[1].id) == path[1]
        assert await backend.get_entry(fork.id, path[2].id) is None
        assert await backend.get_entry(session.id, UNKNOWN) is None
        assert await backend.get_entry(session.id, "") is None

    async def test_entry_ids_are_matched_by_prefix_among_what_the_session_sees(self, backend: Backend) -> None:
        ids = ["ab2", "ab1", "AB3", "b", "a%c", "a_d", "aé"]
        session = await new_session(backend, *(placed(user(), entry_id) for entry_id in ids))
        await new_session(backend, placed(user(), "ab0"))
        fork = await backend.fork(session.id, "ab1", NewSession())
        await add(backend, fork.id, placed(user(), "ab9"))
        assert await backend.match_entry_ids(session.id, "ab", 9) == ["ab1", "ab2"]
        assert await backend.match_entry_ids(session.id, "a", 9) == ["a%c", "a_d", "ab1", "ab2", "aé"]
        assert await backend.match_entry_ids(session.id, "a") == ["a%c", "a_d"]
        assert await backend.match_entry_ids(session.id, "a%", 9) == ["a%c"]
        assert await backend.match_entry_ids(session.id, "a_", 9) == ["a_d"]
        assert await backend.match_entry_ids(session.id, "ab1") == ["ab1"]
        assert await backend.match_entry_ids(session.id, "ab9") == []
        assert await backend.match_entry_ids(session.id, "", 9) == sorted(ids)
        assert await backend.match_entry_ids(fork.id, "ab", 9) == ["ab1", "ab2", "ab9"]
        assert await backend.match_entry_ids(fork.id, "", 9) == ["ab1", "ab2", "ab9"]

    async def test_of_many_ids_that_begin_alike_those_the_session_sees_are_found(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user(), "a"))
        fork = await backend.fork(session.id, "a", NewSession())
        await add(backend, session.id, *(placed(user(), f"x{number:03}") for number in range(150)))
        await add(backend, fork.id, placed(user(), "x1"), placed(user(), "x2"))
        assert await backend.match_entry_ids(fork.id, "x", 9) == ["x1", "x2"]
        assert len(await backend.match_entry_ids(session.id, "x", 200)) == 150

    async def test_an_ancestor_is_an_entry_on_the_way_to_the_root_or_the_entry_itself(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
        await backend.move(session.id, first)
        (sibling,) = await add(backend, session.id, user())
        fork = await backend.fork(session.id, second, NewSession())
        (own,) = await add(backend, fork.id, user())
        for entry_id, of, expected in (
            (first, third, True), (second, third, True), (third, third, True), (third, first, False),
            (second, sibling, False), (sibling, third, False), (first, sibling, True),
        ):  # fmt: skip
            assert await backend.is_ancestor(session.id, entry_id, of) is expected
        assert await backend.is_ancestor(fork.id, first, own) is True
        assert await backend.is_ancestor(fork.id, own, second) is False
        for entry_id, of in ((UNKNOWN, first), (first, UNKNOWN), (own, first), (first, own)):
            with pytest.raises(EntryNotFound):
                await backend.is_ancestor(session.id, entry_id, of)

    # -- the feed -------------------------------------------------------------------------------------------------

    async def test_the_feed_holds_every_revision_in_order(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        path = await path_ids(backend, session.id)
        await backend.update_session(session.id, title="x")
        await backend.move(session.id, path[0])
        await backend.append(session.id, [user()], expected=path[1], on_conflict="branch")
        await backend.set_label(session.id, path[0], "x")
        await backend.undo(session.id)
        await backend.redo(session.id)
        await backend.create_task(session.id, "t", NewSession())
        await backend.link_task(session.id, UNKNOWN, "u")
        await backend.import_entries(session.id, [placed(user(), "i", path[1])], leaf="i")
        await backend.retract(session.id, "i")
        changes = await backend.changes(session.id, 0, 100)
        assert [change.revision for change in changes] == list(range(1, 12))
        assert [change.reason for change in changes] == [
            "append", None, "move", "branch", None, "undo", "redo", None, None, "import", "retract",
        ]  # fmt: skip
        assert [len(change.entries) for change in changes] == [2, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0]
        assert (await session_info(backend, session.id)).revision == 11
        leaf = None
        for change in changes:
            if change.reason is not None:
                assert change.from_id == leaf
                leaf = change.to_id
        assert leaf == path[1]

    async def test_the_feed_tells_the_entries_of_a_revision_in_the_order_they_came(self, backend: Backend) -> None:
        session = await new_session(backend)
        entries = [placed(user(), "c"), placed(user(), "b", "c"), placed(user(), "a"), placed(user(), "d", "a")]
        await backend.import_entries(session.id, entries, leaf="b")
        (change,) = await backend.changes(session.id, 0, 9)
        assert ids_of(change.entries) == ["c", "b", "a", "d"]

    async def test_the_feed_can_be_resumed_anywhere(self, backend: Backend) -> None:
        session = await new_session(backend)
        for number in range(7):
            await add(backend, session.id, *talk(number % 3 + 1))
            await backend.update_session(session.id, title=str(number))
        everything = await backend.changes(session.id, 0, 100)
        assert len(everything) == 14
        for step in (1, 2, 5):
            read, after = [], 0
            while page := await backend.changes(session.id, after, step):
                assert len(page) <= step
                read += page
                after = page[-1].revision
            assert read == everything
        assert await backend.changes(session.id, 14, 10) == []
        assert await backend.changes(session.id, 99, 10) == []

    async def test_a_forks_feed_starts_at_its_creation(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, session.id, *talk(2))
        appended = await backend.append(fork.id, talk(2))
        (change,) = await backend.changes(fork.id, 0, 10)
        assert (change.revision, change.from_id, change.to_id) == (1, session.leaf_id, appended.leaf_id)
        assert ids_of(change.entries) == list(appended.entry_ids)

    # -- notifications --------------------------------------------------------------------------------------------

    async def test_a_watcher_is_told_at_once_and_after_each_change(self, backend: Backend) -> None:
        session = await new_session(backend)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.notifications(session.id)) as told:
                await anext(told)
                for number in range(3):
                    await backend.append(session.id, talk(1))
                    await anext(told)
                    changes = await backend.changes(session.id, number, 10)
                    assert [change.revision for change in changes] == [number + 1]

    async def test_a_watcher_that_was_told_sees_the_change_that_came_while_it_looked(self, backend: Backend) -> None:
        session = await new_session(backend)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.notifications(session.id)) as told:
                await anext(told)
                async with anyio.create_task_group() as group:
                    for _ in range(5):
                        group.start_soon(backend.append, session.id, talk(1))
                    seen = 0
                    while seen < 5:
                        await anext(told)
                        seen += len(await backend.changes(session.id, seen, 10))

    async def test_a_watcher_is_not_told_of_other_sessions(self, backend: Backend) -> None:
        session, other = await new_session(backend), await new_session(backend)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.notifications(session.id)) as told:
                await anext(told)
                woken = anyio.Event()

                async def wait() -> None:
                    await anext(told)
                    woken.set()

                async with anyio.create_task_group() as group:
                    group.start_soon(wait)
                    for _ in range(5):
                        await add(backend, other.id, user())
                        await checkpoint()
                    assert not woken.is_set()
                    await add(backend, session.id, user())

    async def test_a_watcher_of_a_session_that_is_deleted_is_told(self, backend: Backend) -> None:
        session = await new_session(backend)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.notifications(session.id)) as told:
                await anext(told)
                await backend.delete_tree(session.id)
                await anext(told)

    async def test_a_watcher_of_a_session_that_is_not_there_is_told_at_once(self, backend: Backend) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.notifications(UNKNOWN)) as told:
                await anext(told)

    async def test_who_waits_for_commits_is_woken_by_each_in_any_session_and_by_none_when_the_store_closes(
        self, open_backend: OpenBackend
    ) -> None:
        backend = await open_backend(counted_sources())
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.commits()) as woken:
                await anext(woken)
                session = await new_session(backend)
                await anext(woken)
                await backend.set_budget(NewBudget("session", "tokens", 1, session.id))
                await anext(woken)
                await backend.delete_tree(session.id)
                await anext(woken)
                await backend.close()
                rest = [None async for _ in woken]
        assert len(rest) <= 1

    async def test_watching_ends_when_the_store_closes(self, open_backend: OpenBackend) -> None:
        backend = await open_backend(counted_sources())
        session = await new_session(backend)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.notifications(session.id)) as told:
                await anext(told)
                await backend.close()
                rest = [told_again async for told_again in told]
        assert len(rest) <= 1
