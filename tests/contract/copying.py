"""The contract: a copied tree is whole, and answers in the other store as it did in the first."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flue_py.core.json import JsonObject
from flue_py.core.ledger import Amounts, Budget, CallRow, EditRow, EntryRow, LedgerQuery, NewBudget, SessionRow
from flue_py.core.sessions import STORED, NewSession
from flue_py.core.trees import TreeCopy
from flue_py.core.usage import read_call
from flue_py.db.backend import Backend
from flue_py.db.sqlite.runner import open_memory
from flue_py.errors import BudgetExceeded, IdempotencyConflict
from flue_py.sessions.store import Store
from flue_py.transfer.copy import copy_store
from tests.checks import refused, unchanged
from tests.samples import add, assistant, new_session, placed, session_info, talk, tree_ids, user
from tests.sources import counted_sources
from tests.whole_stores import NOISE, copied, make_everything, told, whole_trees, with_names

LONG = 3_600_000_000
CENT = 10**10
"""One cent in picodollars."""


async def budget_of(backend: Backend, budget_id: str) -> Budget:
    """Return a budget that is there."""
    budget = await backend.get_budget(budget_id)
    assert budget is not None
    return budget


class CopyContract:
    """Reading whole trees, and writing them."""

    async def test_a_copy_tells_what_the_first_store_tells(self, backend: Backend, other: Backend) -> None:
        await make_everything(backend)
        await copied(backend, other)
        assert await told(other) == await told(backend)
        listed = [await each.list_sessions(scope=None, kind=None, limit=100, cursor=None) for each in (backend, other)]
        assert listed[0] == listed[1]
        # What links say is no part of a row, and told all the same.
        metadata = [{info.id: info.metadata for info in page.sessions} for page in listed]
        assert metadata[0] == metadata[1]
        assert any("taskSessions" in each for each in metadata[0].values())

    async def test_a_copy_has_the_same_rows(self, backend: Backend, other: Backend) -> None:
        await make_everything(backend)
        await copied(backend, other)
        first, second = await whole_trees(backend), await whole_trees(other)

        def by_session(trees: list[TreeCopy]) -> dict[str, dict[str, list[tuple[object, ...]]]]:
            return {session.id: with_names(tree) for tree in trees for session in tree.sessions}

        assert by_session(second) == by_session(first)

    async def test_a_copy_by_way_of_the_store_in_memory_tells_the_same(self, backend: Backend, other: Backend) -> None:
        await make_everything(backend)
        memory = open_memory(counted_sources())
        await copied(backend, memory)
        await copied(memory, other)
        assert await told(other) == await told(backend)

    async def test_reading_a_tree_changes_nothing(self, backend: Backend, other: Backend) -> None:
        await make_everything(backend)
        async with unchanged(backend):
            await copied(backend, other)

    async def test_what_was_undone_can_be_redone_in_the_copy(self, backend: Backend, other: Backend) -> None:
        session = await new_session(backend)
        await add(backend, session.id, user("one"))
        (leaf,) = await add(backend, session.id, assistant("two"))
        await backend.retract(session.id, leaf)
        await backend.undo(session.id)
        await backend.undo(session.id)
        await copied(backend, other)
        for each in (backend, other):
            redone = [await each.redo(session.id) for _ in range(3)]
            assert [None if moved is None else moved.to_id for moved in redone] == [leaf, redone[0].from_id, None]  # type: ignore[union-attr]
            undone = [await each.undo(session.id) for _ in range(4)]
            assert [moved is None for moved in undone] == [False, False, False, True]

    async def test_a_retry_is_recognised_in_the_copy(self, backend: Backend, other: Backend) -> None:
        session = await new_session(backend, *talk(2))
        appended = await backend.append(session.id, [user("new")], idempotency_key="append")
        moved = await backend.move(session.id, None, idempotency_key="move")
        fork = await backend.fork(session.id, STORED, NewSession(title="f"), idempotency_key="fork")
        task = await backend.create_task(session.id, "t", NewSession(), idempotency_key="task")
        await copied(backend, other)
        again = await other.append(session.id, [user("new")], idempotency_key="append")
        assert again == replace(appended, replayed=True)
        assert await other.move(session.id, None, idempotency_key="move") == replace(moved, replayed=True)
        assert (await other.fork(session.id, STORED, NewSession(title="f"), idempotency_key="fork")).id == fork.id
        assert (await other.create_task(session.id, "t", NewSession(), idempotency_key="task")).id == task.id
        async with refused(other, IdempotencyConflict):
            await other.append(session.id, [user("else")], idempotency_key="append")

    async def test_a_copy_goes_on_as_the_first_store_would(self, backend: Backend, other: Backend) -> None:
        session = await make_everything(backend)
        await copied(backend, other)
        for each in (backend, other):
            await add(each, session.id, *(placed(new, f"new-{n}") for n, new in enumerate(talk(3))))
            fork = await each.fork(session.id, "new-1", NewSession(id="new fork"))
            await add(each, fork.id, placed(user(), "new-3"))
        assert await tree_ids(other, session.id) == await tree_ids(backend, session.id)
        assert (await session_info(other, session.id)).spent_tokens == (
            await session_info(backend, session.id)
        ).spent_tokens

    async def test_a_deletion_in_the_copy_takes_what_it_takes_in_the_first_store(
        self, backend: Backend, other: Backend
    ) -> None:
        await make_everything(backend)
        await copied(backend, other)
        for session_id in await told(backend):
            first, second = await backend.delete_tree(session_id), await other.delete_tree(session_id)
            assert second.entries_deleted == first.entries_deleted
            assert set(second.session_ids) == set(first.session_ids)
            assert await told(other) == await told(backend)
        assert (await other.info()).entries == 0

    async def test_what_sessions_that_are_gone_have_paid_comes_along_once(
        self, backend: Backend, other: Backend
    ) -> None:
        for _ in range(3):
            await backend.create_session(NewSession(id="again"))
            await add(backend, "again", assistant("paid", tokens=5, dollars=0.5))
            fork = await backend.fork("again", STORED, NewSession())
            await add(backend, fork.id, assistant("paid", tokens=7))
            await backend.delete_tree("again")
            await backend.delete_tree(fork.id)
        report = await copied(backend, other)
        assert (report.calls, report.trees_copied) == (6, 0)
        assert (await other.info()).ledger_rows == 6
        assert (await copied(backend, other)).calls == 0
        gone = [await each.list_gone_payers(-1, 100) for each in (backend, other)]

        def paid(number: int) -> list[tuple[str, list[CallRow]]]:
            calls = [
                (each.payer.session_id, [call._replace(session_key=0) for call in each.calls]) for each in gone[number]
            ]
            return sorted(calls)

        assert paid(1) == paid(0)
        assert len({each.tree_id for each in gone[1]}) == 3

    async def test_budgets_come_along_with_what_is_reserved_in_them(self, backend: Backend, other: Backend) -> None:
        session = await new_session(backend, scope="team")
        own = await backend.set_budget(NewBudget("session", "tokens", 1_000, session.id))
        shared = await backend.set_budget(NewBudget("scope", "picodollars", 50, scope="team", spent=7))
        taken = [await backend.reserve(session.id, Amounts(tokens, 5), LONG) for tokens in (100, 200, 300)]
        await backend.commit_reservation(taken[0].id, Amounts(90, 4))
        await backend.release_reservation(taken[1].id)
        report = await copied(backend, other)
        assert (report.budgets, report.budgets_kept, report.budgets_left) == (2, 0, ())
        for each in (backend, other):
            assert [(budget.spent, budget.reserved) for budget in await each.covering_budgets(session.id)] == [
                (90, 300),
                (11, 5),
            ]
        assert await other.list_budgets(scope=None, after=None, limit=9) == [
            await backend.get_budget(budget.id) for budget in (own, shared)
        ]
        for reservation in taken:
            assert await other.get_reservation(reservation.id) == await backend.get_reservation(reservation.id)
        assert await other.held_amounts(own.id) == await backend.held_amounts(own.id)
        # What was under way goes on in the copy.
        await other.commit_reservation(taken[2].id, Amounts(300, 5))
        with pytest.raises(BudgetExceeded):
            await other.reserve(session.id, Amounts(700, 1), LONG)

    async def test_a_budget_that_was_changed_later_in_the_source_replaces_its_copy(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend)
        budget = await backend.set_budget(NewBudget("tasks", "tokens", 100, session.id))
        await copied(backend, other)
        assert (await copied(backend, other)).budgets_kept == 1
        held = await backend.reserve(session.id, Amounts(30), LONG)
        assert (await copied(backend, other)).budgets == 1
        await backend.prolong_reservation(held.id, 2 * LONG)
        assert (await copied(backend, other)).budgets == 1
        assert await other.get_reservation(held.id) == await backend.get_reservation(held.id)
        await backend.release_reservation(held.id)
        assert (await copied(backend, other)).budgets == 1
        assert await other.get_budget(budget.id) == await backend.get_budget(budget.id)
        assert await other.held_amounts(budget.id) == []
        # What the copy has spent by itself since is not forgotten.
        for _ in range(50):
            await other.set_budget(NewBudget("tasks", "tokens", 120, session.id))
        assert ((report := await copied(backend, other)).budgets, report.budgets_kept) == (0, 1)
        assert (await budget_of(other, budget.id)).allowed == 120

    async def test_a_budget_stays_behind_where_the_target_has_another_or_not_its_session(
        self, backend: Backend, other: Backend
    ) -> None:
        await backend.create_session(NewSession(id="first"))
        await other.create_session(NewSession(id="first", scope="elsewhere"))
        alone = await backend.set_budget(NewBudget("session", "tokens", 5, "first"))
        shared = await backend.set_budget(NewBudget("scope", "tokens", 5))
        await other.create_session(NewSession())  # so that ids are not drawn alike
        there = await other.set_budget(NewBudget("scope", "tokens", 6, spent=1))
        report = await copy_store(Store(backend), Store(other))
        left = {each.budget_id: each.is_refused for each in report.budgets_left}
        assert report.is_complete is False
        assert left == {alone.id: False, shared.id: True}
        assert (await budget_of(other, there.id)).spent == 1
        assert len(await other.list_budgets(scope=None, after=None, limit=9)) == 1

    async def test_the_budget_of_a_session_that_the_source_has_deleted_goes_with_its_copy(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend, user())
        fork = await backend.fork(session.id, STORED, NewSession())
        budget = await backend.set_budget(NewBudget("session", "tokens", 5, fork.id))
        await copied(backend, other)
        await backend.delete_tree(fork.id)
        assert (await copied(backend, other)).removed_ids == (fork.id,)
        assert await other.get_budget(budget.id) is None

    async def test_whose_tasks_have_paid_is_known_in_the_copy(self, backend: Backend, other: Backend) -> None:
        top = await new_session(backend, assistant("top", tokens=1))
        task = await backend.create_task(top.id, "a", NewSession())
        below = await backend.create_task(task.id, "b", NewSession())
        await add(backend, below.id, assistant("below", tokens=10))
        await copied(backend, other)
        query = LedgerQuery(session_id=top.id, tasks=True)
        await backend.delete_tree(task.id)
        await other.delete_tree(task.id)
        await copied(backend, other)
        for each in (backend, other, open_memory(counted_sources())):
            if each is not backend:
                await copied(backend, each)
            assert (await each.read_ledger(query)).total.total_tokens == 11

    async def test_trees_are_listed_in_pages(self, backend: Backend) -> None:
        sessions = [await new_session(backend, user()) for _ in range(5)]
        forks = {session.id: await backend.fork(session.id, STORED, NewSession()) for session in sessions[::2]}
        found = []
        after = -1
        while page := await backend.list_trees(after, 2):
            assert len(page) <= 2
            after = page[-1].tree_id
            found += [{head.id for head in tree.sessions} for tree in page]
        expected = [{each.id, forks[each.id].id} if each.id in forks else {each.id} for each in sessions]
        assert sorted(found, key=sorted) == sorted(expected, key=sorted)

    async def test_trees_and_their_sessions_are_listed_as_they_were_made(self, backend: Backend) -> None:
        first, second, third = [await new_session(backend, user()) for _ in range(3)]
        fork = await backend.fork(first.id, STORED, NewSession(id="a fork"))
        listed, after = [], -1
        while page := await backend.list_trees(after, 1):
            listed += [[session.id for session in head.sessions] for head in page]
            after = page[-1].tree_id
        assert listed == [[first.id, fork.id], [second.id], [third.id]]

    async def test_who_paid_and_is_gone_is_listed_as_it_was_made(self, backend: Backend) -> None:
        gone = [await new_session(backend) for _ in range(3)]
        for session in gone:
            for call_id in ("b", "a"):
                reported: JsonObject = {"input": 1, "callId": f"{call_id} of {session.id}"}
                await backend.record_call(session.id, read_call(reported, "usage"))
            await backend.delete_tree(session.id)
        listed, after = [], -1
        while page := await backend.list_gone_payers(after, 1):
            (payer,) = page
            listed.append((payer.payer.session_id, [call.call_id for call in payer.calls]))
            after = payer.payer.session_key
        assert listed == [(each.id, [f"a of {each.id}", f"b of {each.id}"]) for each in gone]
        assert len(await backend.list_gone_payers(-1, 2)) == 2

    async def test_whole_budgets_and_their_reservations_are_listed_as_they_were_made(self, backend: Backend) -> None:
        session = await new_session(backend)
        budgets = [
            await backend.set_budget(NewBudget(covers, "tokens", 9, session.id)) for covers in ("session", "tasks")
        ]
        made = [(await backend.reserve(session.id, Amounts(1), LONG)).id for _ in range(3)]
        (first,) = await backend.list_whole_budgets(-1, 1)
        (second,) = await backend.list_whole_budgets(first.position, 9)
        assert [each.budget.id for each in (first, second)] == [budget.id for budget in budgets]
        assert [[row.reservation_id for row in each.reservations] for each in (first, second)] == [made, made]

    async def test_of_several_budgets_it_says_in_their_order_what_became_of_each(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend)
        await backend.set_budget(NewBudget("session", "tokens", 9, session.id))
        await backend.set_budget(NewBudget("scope", "tokens", 9))
        copies = await backend.list_whole_budgets(-1, 9)
        assert await other.write_budgets(copies) == ["no session", "written"]
        assert await other.write_budgets(copies[::-1]) == ["same", "no session"]

    async def test_a_tree_that_comes_back_does_not_become_a_copy(self, backend: Backend, other: Backend) -> None:
        session = await new_session(backend, user())
        await copied(backend, other)
        (tree,) = await whole_trees(backend)
        assert (await backend.write_whole_tree(tree)).state == "same"
        await add(other, session.id, user())
        (standing,) = await backend.compare_trees(await other.list_trees(-1, 1))
        assert standing.state == "refused"

    async def test_a_tree_that_is_gone_cannot_be_read(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        (head,) = await backend.list_trees(-1, 10)
        await backend.delete_tree(session.id)
        assert await backend.read_whole_tree(head.tree_id) is None
        assert await backend.list_trees(-1, 10) == []

    async def test_what_rows_say_beside_the_history_comes_along(self, backend: Backend, other: Backend) -> None:
        session = await new_session(backend, *talk(4))
        await backend.move(session.id, None)
        (tree,) = await whole_trees(backend)
        (row,), (move,), key = tree.sessions, tree.moves, tree.sessions[0].session_key
        unpriced = [*tree.entries[:3], tree.entries[3]._replace(unpriced_calls=1, paid_cost=CENT)]
        told_more = replace(
            tree,
            sessions=[row._replace(auto_title="About a build", unpriced_calls=1, spent_cost=CENT)],
            entries=unpriced,
            moves=[move._replace(why="it went astray", moved_by="somebody")],
            calls=[tree.calls[0], tree.calls[1]._replace(cost=None, outcome="aborted")],
            edits=[
                EditRow(key, row.revision, "label", row.leaf, None, "start", "somebody", "to find it", 5),
                EditRow(key, row.revision, "title", None, "before", "after", None, None, 6),
            ],
        )
        expected = with_names(told_more)
        await other.write_whole_tree(told_more)
        assert with_names((await whole_trees(other))[0]) == expected
        assert (await session_info(other, session.id)).auto_title == "About a build"
        assert (await other.verify()).problems == []
        # An earlier copy is replaced, and says no more than the later one.
        await backend.move(session.id, tree.entries[1].id)
        later = replace((await whole_trees(backend))[0], calls=told_more.calls, edits=told_more.edits[:1])
        later = replace(
            later, entries=unpriced, sessions=[later.sessions[0]._replace(unpriced_calls=1, spent_cost=CENT)]
        )
        await other.write_whole_tree(later)
        assert with_names((await whole_trees(other))[0]) == with_names(later)
        assert (await session_info(other, session.id)).auto_title is None

    async def test_the_rows_of_a_tree_are_what_the_format_says(self, backend: Backend) -> None:
        session = await new_session(backend, user("hello"), assistant("yes", tokens=5, dollars=0.5), user(NOISE))
        (tree,) = await whole_trees(backend)
        (row,) = tree.sessions
        assert isinstance(row, SessionRow)
        assert (row.id, row.entry_count, row.spent_tokens) == (session.id, 3, 5)
        assert all(isinstance(entry, EntryRow) for entry in tree.entries)
        assert [entry.depth for entry in tree.entries] == [0, 1, 2]
        assert [entry.total_tokens for entry in tree.entries] == [0, 5, 5]
        assert tree.entries[2].blob == tree.blobs[0].sha256
        assert [(call.tokens, call.cost) for call in tree.calls] == [(5, 500_000_000_000)]
        assert tree.payers[0].session_id == session.id
        assert tree.head == (await backend.list_trees(-1, 1))[0]
