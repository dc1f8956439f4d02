"""The contract: deletion is exact. What no survivor sees goes, what one sees stays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from msgspec.structs import replace

from flue_py.core.entries import Entry
from flue_py.core.ledger import LedgerQuery, NewBudget
from flue_py.core.sessions import STORED, DocumentFilter, NewDocument, NewSession, deletion_of
from flue_py.core.usage import PaidCall, UsageTotals
from flue_py.db.backend import Backend
from flue_py.errors import SessionNotFound
from tests.checks import unchanged
from tests.samples import (
    UNKNOWN,
    Snapshot,
    add,
    assistant,
    compaction,
    new_session,
    path_ids,
    placed,
    session_info,
    snapshot,
    talk,
    tree_ids,
    user,
)


def orphaned(before: Snapshot, *deleted: str) -> Snapshot:
    """Return what a survivor should show: all it showed, with deleted sessions no longer named as creators."""

    def without_creator(entries: Sequence[Entry]) -> list[Entry]:
        return [replace(entry, session_id=None) if entry.session_id in deleted else entry for entry in entries]

    return replace(
        before,
        path=without_creator(before.path),
        tree=without_creator(before.tree),
        turns=without_creator(before.turns),
        parents=[link for link in before.parents if link.parent_id not in deleted],
    )


class DeletionContract:
    """Deleting trees of sessions."""

    async def test_a_deleted_session_is_gone_with_its_entries(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4), key="k")
        await backend.set_label(session.id, (await path_ids(backend, session.id))[0], "x")
        await backend.move(session.id, None)
        deletion = await backend.delete_tree(session.id)
        assert deletion.session_ids == (session.id,)
        assert (deletion.missing_ids, deletion.entries_deleted, deletion.entries_kept) == ((), 4, 0)
        assert await backend.get_session(session.id) is None
        assert await backend.get_session_by_key("k", "") is None
        assert await backend.match_session_ids("", 9) == []
        info = await backend.info()
        assert (info.sessions, info.entries) == (0, 0)

    async def test_reads_and_writes_of_a_deleted_session_are_refused_also_when_its_key_is_used_again(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend, *talk(2), key="k")
        await backend.delete_tree(session.id)
        again = await new_session(backend, user("new"), key="k")
        with pytest.raises(SessionNotFound):
            await backend.read_path(session.id)
        async with unchanged(backend):
            with pytest.raises(SessionNotFound):
                await backend.append(session.id, [user()])
            with pytest.raises(SessionNotFound):
                await backend.move(session.id, None)
        assert await backend.get_session_by_key("k", "") == again

    async def test_deleting_what_is_not_there_is_no_error(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await backend.delete_tree(session.id)
        other = await new_session(backend, user())
        async with unchanged(backend):
            for session_id in (UNKNOWN, session.id, ""):
                deletion = await backend.delete_tree(session_id)
                assert (deletion.session_ids, deletion.entries_deleted, deletion.entries_kept) == ((), 0, 0)
                assert deletion.missing_ids == ()  # it names linked children, and nothing led here
        assert await session_info(backend, other.id) == other

    async def test_a_scope_is_emptied_of_documents_budgets_and_names_and_keeps_what_was_paid(
        self, backend: Backend
    ) -> None:
        for scope in ("a", "b"):
            session = await new_session(backend, scope=scope, cwd="/home/jane")
            call = PaidCall(UsageTotals(5, total_tokens=5), call_id="c1", agent="jane's agent")
            await backend.record_call(session.id, call)
            await backend.put_document(NewDocument("memory", "fact", "x", "user", scope, "repl"))
            await backend.put_document(NewDocument("file", "f.txt", "x", "text/plain", scope))
            await backend.set_budget(NewBudget("session", "tokens", 5, session.id))
            await backend.set_budget(NewBudget("scope", "tokens", 5, None, scope))
        async with unchanged(backend):
            assert await backend.empty_scope("a", dry_run=True) == (1, 1, 2, 1)
        assert await backend.empty_scope("a") == (1, 1, 2, 1)
        assert await backend.empty_scope("a") == (0, 0, 0, 1)
        # What was deleted in another scope is remembered in this one.
        note = deletion_of("gone", "b")
        await backend.put_document(note)
        assert await backend.empty_scope("") == (0, 0, 0, 0)
        assert await backend.get_document(note.id) is not None
        query = LedgerQuery(group_by=("scope", "project", "agent"))
        report = await backend.read_ledger(query)
        assert [(dict(row.group), row.input) for row in report.rows] == [
            ({"scope": "a", "project": None, "agent": None}, 5),
            ({"scope": "b", "project": "/home/jane", "agent": "jane's agent"}, 5),
        ]
        assert len(await backend.list_budgets(scope=None, after=None, limit=9)) == 2
        for kind in ("memory", "file"):
            assert list(await backend.list_documents(DocumentFilter(kind, "a"), after=None, limit=9)) == []
            assert len(await backend.list_documents(DocumentFilter(kind, "b"), after=None, limit=9)) == 1
        assert (await backend.verify()).problems == []

    async def test_a_session_of_another_scope_is_not_deleted(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2), scope="a")
        async with unchanged(backend):
            assert (await backend.delete_tree(session.id, scope="b")).session_ids == ()
            assert (await backend.delete_tree(session.id, scope="")).session_ids == ()
        assert (await backend.delete_tree(session.id, scope="a")).session_ids == (session.id,)

    async def test_tasks_of_another_scope_stay_with_theirs(self, backend: Backend) -> None:
        parent, own = await new_session(backend, scope="a"), await new_session(backend, scope="a")
        await backend.link_task(parent.id, own.id, "own")
        # A link may be there before its task, which somebody else then makes.
        await backend.link_task(parent.id, "theirs", "t")
        await backend.import_session(NewSession(id="theirs", scope="b"), [placed(user(), "e")], leaf="e")
        below = await new_session(backend, scope="a")
        await backend.link_task("theirs", below.id, "below")
        for session_id, tokens in ((parent.id, 3), ("theirs", 5)):
            call = PaidCall(UsageTotals(tokens, total_tokens=tokens), call_id=session_id)
            await backend.record_call(session_id, call)
        for dry_run in (True, False):
            gone = await backend.delete_tree(parent.id, scope="a", dry_run=dry_run)
            assert (set(gone.session_ids), gone.missing_ids) == ({parent.id, own.id}, ("theirs",))
        assert await backend.get_session("theirs") is not None
        assert await backend.get_session(below.id) is not None
        assert (await backend.read_ledger(LedgerQuery(parent.id, tasks=True))).total.input == 3

    async def test_a_dry_run_says_what_would_go_and_changes_nothing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        fork = await backend.fork(session.id, (await path_ids(backend, session.id))[1], NewSession())
        child = await backend.create_task(session.id, "t", NewSession())
        await add(backend, child.id, *talk(3))
        await backend.link_task(child.id, UNKNOWN, "u")
        async with unchanged(backend):
            foretold = await backend.delete_tree(session.id, dry_run=True)
        assert {*foretold.session_ids} == {session.id, child.id}
        assert (foretold.missing_ids, foretold.entries_deleted, foretold.entries_kept) == ((UNKNOWN,), 5, 2)
        done = await backend.delete_tree(session.id)
        assert {*done.session_ids} == {*foretold.session_ids}
        assert replace(done, session_ids=()) == replace(foretold, session_ids=())
        assert (await backend.info()).entries == 2
        assert await tree_ids(backend, fork.id) == await path_ids(backend, fork.id)

    # -- task sessions --------------------------------------------------------------------------------------------

    async def test_task_sessions_go_with_their_parent_and_so_do_theirs(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        bystander = await new_session(backend, *talk(2))
        current, family = session.id, {session.id}
        for _ in range(4):
            child = await backend.create_task(current, "t", NewSession())
            sibling = await backend.create_task(current, "u", NewSession())
            await add(backend, child.id, *talk(2))
            family |= {child.id, sibling.id}
            current = child.id
        deletion = await backend.delete_tree(session.id)
        assert {*deletion.session_ids} == family
        assert len(deletion.session_ids) == len(family)
        assert deletion.entries_deleted == 10
        info = await backend.info()
        assert (info.sessions, info.entries) == (1, 2)
        assert await session_info(backend, bystander.id) == bystander

    async def test_deleting_a_task_session_leaves_its_parent_and_the_link(self, backend: Backend) -> None:
        parent = await new_session(backend, *talk(2))
        child = await backend.create_task(parent.id, "t", NewSession())
        before = await snapshot(backend, parent.id)
        assert (await backend.delete_tree(child.id)).session_ids == (child.id,)
        assert await snapshot(backend, parent.id) == before
        assert [link.child_id for link in await backend.task_links(parent.id)] == [child.id]
        async with unchanged(backend):
            await backend.link_task(parent.id, child.id, "again")

    async def test_a_missing_child_is_reported_and_tolerated(self, backend: Backend) -> None:
        parent = await new_session(backend)
        child = await backend.create_task(parent.id, "t", NewSession())
        await backend.link_task(parent.id, UNKNOWN, "u")
        await backend.link_task(child.id, UNKNOWN, "u")
        foretold = await backend.delete_tree(parent.id, dry_run=True)
        assert sorted(foretold.links) == sorted([(parent.id, child.id), (parent.id, UNKNOWN), (child.id, UNKNOWN)])
        deletion = await backend.delete_tree(parent.id)
        assert {*deletion.session_ids} == {parent.id, child.id}
        assert deletion.missing_ids == (UNKNOWN,)

    async def test_cycles_of_links_are_deleted_once(self, backend: Backend) -> None:
        ids = [(await new_session(backend, *talk(2))).id for _ in range(4)]
        for parent_id, child_id in zip(ids, [*ids[1:], ids[0]], strict=True):
            await backend.link_task(parent_id, child_id, "t")
        await backend.link_task(ids[2], ids[2], "self")
        deletion = await backend.delete_tree(ids[1])
        assert sorted(deletion.session_ids) == sorted(ids)
        assert (deletion.missing_ids, deletion.entries_deleted) == ((), 8)
        assert (await backend.info()).sessions == 0

    async def test_a_child_of_several_parents_goes_with_the_first_of_them(self, backend: Backend) -> None:
        one, two = await new_session(backend), await new_session(backend)
        child = await backend.create_task(one.id, "t", NewSession())
        await backend.link_task(two.id, child.id, "t")
        deletion = await backend.delete_tree(one.id)
        assert {*deletion.session_ids} == {one.id, child.id}
        assert [link.child_id for link in await backend.task_links(two.id)] == [child.id]
        assert (await backend.delete_tree(two.id)).missing_ids == (child.id,)

    async def test_a_child_reached_twice_is_deleted_once(self, backend: Backend) -> None:
        top, left, right, bottom = [(await new_session(backend, *talk(1))).id for _ in range(4)]
        for parent_id, child_id in ((top, left), (top, right), (left, bottom), (right, bottom)):
            await backend.link_task(parent_id, child_id, "t")
        deletion = await backend.delete_tree(top)
        assert sorted(deletion.session_ids) == sorted([top, left, right, bottom])
        assert deletion.entries_deleted == 4

    async def test_a_long_chain_of_links_is_followed_to_its_end(self, backend: Backend) -> None:
        ids = [f"link-{n:03d}" for n in range(150)]
        for session_id in ids:
            await backend.create_session(NewSession(id=session_id))
        for parent_id, child_id in pairwise(ids):
            await backend.link_task(parent_id, child_id, "t")
        assert len((await backend.delete_tree(ids[0])).session_ids) == 150

    async def test_a_task_session_that_was_forked_goes_and_its_fork_stays(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(1))
        child = await backend.create_task(session.id, "t", NewSession())
        ids = await add(backend, child.id, *talk(4))
        fork = await backend.fork(child.id, ids[2], NewSession())
        before = await snapshot(backend, fork.id)
        deletion = await backend.delete_tree(session.id)
        assert (deletion.entries_deleted, deletion.entries_kept) == (2, 3)
        assert await snapshot(backend, fork.id) == orphaned(before, child.id)

    async def test_a_fork_that_is_linked_as_a_task_goes_with_its_source(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, *talk(2))
        await backend.link_task(session.id, fork.id, "t")
        deletion = await backend.delete_tree(session.id)
        assert {*deletion.session_ids} == {session.id, fork.id}
        assert (deletion.entries_deleted, (await backend.info()).entries) == (5, 0)

    # -- forks ----------------------------------------------------------------------------------------------------

    async def test_a_fork_keeps_all_it_sees_when_its_source_goes(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(6))
        path = await path_ids(backend, session.id)
        await add(backend, session.id, compaction(path[2]), *talk(3))
        leaf = (await session_info(backend, session.id)).leaf_id
        fork = await backend.fork(session.id, leaf, NewSession())
        await add(backend, fork.id, *talk(2))
        await backend.move(fork.id, path[1])
        await add(backend, fork.id, *talk(2))
        await add(backend, session.id, *talk(5))
        before = await snapshot(backend, fork.id)
        deletion = await backend.delete_tree(session.id)
        assert (deletion.session_ids, deletion.entries_deleted, deletion.entries_kept) == ((session.id,), 5, 10)
        assert await snapshot(backend, fork.id) == orphaned(before, session.id)
        assert (await backend.info()).entries == 14

    async def test_a_fork_goes_on_working_when_its_source_is_gone(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        path = await path_ids(backend, session.id)
        fork = await backend.fork(session.id, path[2], NewSession())
        (own,) = await add(backend, fork.id, user())
        await backend.delete_tree(session.id)
        await backend.undo(fork.id)
        assert await path_ids(backend, fork.id) == path[:3]
        await backend.redo(fork.id)
        await backend.move(fork.id, path[0])
        (aside,) = await add(backend, fork.id, compaction(path[1]))
        assert await tree_ids(backend, fork.id) == [*path[:3], own, aside]
        assert await backend.get_entry(fork.id, path[3]) is None
        again = await backend.fork(fork.id, path[1], NewSession())
        await backend.delete_tree(fork.id)
        assert await tree_ids(backend, again.id) == path[:2]
        assert (await backend.info()).entries == 2

    async def test_the_source_keeps_all_it_sees_when_its_fork_goes(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        before = await snapshot(backend, session.id)
        fork = await backend.fork(session.id, (await path_ids(backend, session.id))[1], NewSession())
        await add(backend, fork.id, *talk(3))
        deletion = await backend.delete_tree(fork.id)
        assert (deletion.entries_deleted, deletion.entries_kept) == (3, 0)
        assert await snapshot(backend, session.id) == before

    @pytest.mark.parametrize("order", ["source first", "middle first", "last first"])
    async def test_forks_of_forks_may_go_in_any_order(self, backend: Backend, order: str) -> None:
        first = await new_session(backend, *talk(4))
        second = await backend.fork(first.id, (await path_ids(backend, first.id))[2], NewSession())
        await add(backend, second.id, *talk(3))
        third = await backend.fork(second.id, (await path_ids(backend, second.id))[-2], NewSession())
        await add(backend, third.id, *talk(2))
        ids = [first.id, second.id, third.id]
        if order == "middle first":
            ids = [second.id, first.id, third.id]
        elif order == "last first":
            ids = ids[::-1]
        for number, session_id in enumerate(ids):
            before = {other: await snapshot(backend, other) for other in ids[number + 1 :]}
            await backend.delete_tree(session_id)
            for other, shown in before.items():
                assert await snapshot(backend, other) == orphaned(shown, session_id)
            seen = {entry_id for other in before for entry_id in await tree_ids(backend, other)}
            assert (await backend.info()).entries == len(seen)
            assert (await backend.verify()).problems == []

    async def test_each_of_several_forks_holds_its_own_stretch(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(10))
        path = await path_ids(backend, session.id)
        forks = [await backend.fork(session.id, path[depth], NewSession()) for depth in (7, 2, 5, 2)]
        await backend.delete_tree(session.id)
        for fork, left, held in zip(forks, (8, 6, 6, 3), (8, 3, 6, 3), strict=True):
            assert (await backend.info()).entries == left
            assert await path_ids(backend, fork.id) == path[:held]
            await backend.delete_tree(fork.id)
            assert (await backend.verify()).problems == []
        assert (await backend.info()).entries == 0

    async def test_a_fork_holds_its_fork_point_also_after_its_leaf_moved_away(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        path = await path_ids(backend, session.id)
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.move(fork.id, None)
        await backend.delete_tree(session.id)
        assert await tree_ids(backend, fork.id) == path
        await backend.move(fork.id, path[-1])
        assert await path_ids(backend, fork.id) == path

    async def test_a_fork_that_retracted_its_fork_point_keeps_it_for_undo(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        path = await path_ids(backend, session.id)
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.retract(fork.id, path[-1])
        await backend.delete_tree(session.id)
        assert await tree_ids(backend, fork.id) == path[:-1]
        moved = await backend.undo(fork.id)
        assert moved is not None
        assert await path_ids(backend, fork.id) == path

    async def test_branches_and_other_roots_of_a_deleted_session_go_too(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        path = await path_ids(backend, session.id)
        await backend.append(session.id, talk(2), expected=path[0], on_conflict="branch")
        await backend.append(session.id, talk(2), expected=None, on_conflict="branch")
        fork = await backend.fork(session.id, path[1], NewSession())
        deletion = await backend.delete_tree(session.id)
        assert (deletion.entries_deleted, deletion.entries_kept) == (5, 2)
        assert await tree_ids(backend, fork.id) == path[:2]

    async def test_an_entry_whose_creator_was_deleted_names_no_creator(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(1))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, user())
        await backend.delete_tree(session.id)
        assert [entry.session_id for entry in await backend.read_tree(fork.id)] == [None, fork.id]

    async def test_the_id_of_a_deleted_entry_can_be_used_again(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user("one"), "a"), placed(user("two"), "b"))
        fork = await backend.fork(session.id, "a", NewSession())
        await backend.delete_tree(session.id)
        await add(backend, fork.id, placed(user("again"), "b"))
        assert await path_ids(backend, fork.id) == ["a", "b"]

    async def test_the_id_of_a_deleted_session_can_be_used_again_and_nothing_comes_back(self, backend: Backend) -> None:
        await backend.create_session(NewSession(id="again"))
        path = await add(backend, "again", *talk(3))
        await backend.set_label("again", path[0], "old")
        await backend.link_task("again", UNKNOWN, "t")
        fork = await backend.fork("again", path[1], NewSession())
        await backend.delete_tree("again")
        for _ in range(2):
            reborn = await backend.fork(fork.id, path[0], NewSession(id="again"))
            assert (reborn.revision, reborn.entry_count, reborn.spent_tokens) == (0, 0, 0)
            assert await backend.changes("again", 0, 10) == []
            assert await tree_ids(backend, "again") == [path[0]]
            assert await backend.read_marks("again") == await backend.read_marks(fork.id)
            assert await backend.task_links("again") == []
            assert await backend.undo("again") is None
            await add(backend, "again", *talk(2))
            assert len(await backend.changes("again", 0, 10)) == 1
            await backend.delete_tree("again")
            assert await tree_ids(backend, fork.id) == list(path[:2])

    # -- money ----------------------------------------------------------------------------------------------------

    async def test_the_bill_outlives_what_it_paid_for(self, backend: Backend) -> None:
        session = await new_session(backend, user(), assistant(tokens=7, dollars=0.5))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, assistant(tokens=2, dollars=0.25))
        rows = (await backend.info()).ledger_rows
        assert rows == 2
        await backend.delete_tree(session.id)
        assert (await backend.info()).ledger_rows == rows
        info = await session_info(backend, fork.id)
        assert (info.spent_tokens, info.spent_picodollars) == (2, 25 * 10**10)
        assert (await backend.read_usage(fork.id, None)).usage.total_tokens == 9
        await backend.delete_tree(fork.id)
        assert (await backend.info()).ledger_rows == rows

    async def test_it_is_known_which_imported_sessions_were_deleted_in_a_scope(self, backend: Backend) -> None:
        new = NewSession(id="x", scope="a", metadata_text='{"imported":{}}')
        known = []
        for scope in ("a", "b"):
            await backend.import_session(replace(new, scope=scope), [placed(user(), "e")], leaf="e")
            known += [await backend.was_deleted(["x", UNKNOWN], of) for of in ("a", "b", "")]
            await backend.delete_tree("x")
            known += [await backend.was_deleted(["x", UNKNOWN], of) for of in ("a", "b", "")]
        assert known == [{}, {}, {}, {"x": True}, {}, {}, {}, {}, {}, {"x": True}, {"x": True}, {}]
        assert (await backend.verify()).problems == []
