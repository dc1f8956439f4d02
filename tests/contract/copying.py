"""The contract: copies of whole trees, and copies that catch up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flue_py.core.json import JsonObject, payload_digest
from flue_py.core.ledger import Amounts, Budget, CallRow, EditRow, EntryRow, LedgerQuery, NewBudget, SessionRow
from flue_py.core.sessions import STORED, DocumentName, NewDocument, NewSession
from flue_py.core.trees import TreeCopy
from flue_py.core.usage import read_call
from flue_py.db.backend import Backend
from flue_py.db.sqlite.runner import open_memory
from flue_py.errors import BudgetExceeded, EntryNotFound, IdempotencyConflict, SessionExists
from flue_py.sessions.store import Store
from flue_py.transfer.copy import copy_store
from tests.checks import raises, refusal, unchanged
from tests.samples import (
    UNKNOWN,
    add,
    assistant,
    new_session,
    path_ids,
    placed,
    session_info,
    talk,
    talked,
    tree_ids,
    user,
)
from tests.sources import counted_sources
from tests.tables import inputs
from tests.values import existing
from tests.whole_stores import NOISE, copied, make_everything, told, whole_trees, with_names

LONG = 3_600_000_000
CENT = 10**10
"""One cent in picodollars."""


async def budget_of(backend: Backend, budget_id: str) -> Budget:
    """Return a budget that is there."""
    return existing(await backend.get_budget(budget_id))


class CopyContract:
    """A copied tree is whole, and answers in the other store as it did in the first."""

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
        await refusal(other, IdempotencyConflict, other.append(session.id, [user("else")], idempotency_key="append"))

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
        await raises(BudgetExceeded, other.reserve(session.id, Amounts(700, 1), LONG))

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

    async def test_a_copy_of_a_budget_has_its_period(self, backend: Backend, other: Backend) -> None:
        daily = NewBudget("scope", "tokens", 100, period="day", tz="Europe/Berlin")
        made = await backend.set_budget(daily)
        copies = await backend.list_whole_budgets(-1, 9)
        assert await other.write_budgets(copies) == ["written"]
        assert await other.write_budgets(copies) == ["same"]
        there = existing(await other.get_budget(made.id))
        assert (there.period, there.tz) == ("day", "Europe/Berlin")
        await other.delete_budget(made.id)
        await other.set_budget(replace(daily, period="week"))
        await other.set_budget(replace(daily, tz="UTC"))
        assert await other.write_budgets(copies) == ["taken"]

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


class CatchUpContract:
    """Copying again brings what is new, and leaves alone what was changed or made in the copy."""

    # -- documents --------------------------------------------------------------------------------------------------

    async def test_documents_are_copied_as_they_are(self, backend: Backend, other: Backend) -> None:
        for number in range(45):
            name = f"d{number:02}"
            scope, project = ("", "s")[number % 2], ("", "/p")[number % 3 == 0]
            await backend.put_document(NewDocument("memory", name, f"é {number}", "user", scope, "repl", project))
        await backend.put_document(NewDocument("file", "d00", "a file", "text/plain", source="/a"))
        report = await copied(backend, other)
        assert (report.documents, report.documents_kept, report.documents_left) == (46, 0, ())
        rows = await backend.list_whole_documents(None, 100)
        assert await other.list_whole_documents(None, 100) == rows
        assert len(rows) == 46
        again = await copied(backend, other)
        assert (again.documents, again.documents_kept) == (0, 46)
        assert await other.write_documents(rows) == ["same"] * 46

    async def test_of_two_states_of_a_document_the_later_one_stays(self, backend: Backend, other: Backend) -> None:
        new = NewDocument("memory", "d", "one", "user", space="repl")
        await backend.put_document(new)
        await copied(backend, other)
        await backend.put_document(replace(new, body="two"))
        report = await copied(backend, other)
        assert (report.documents, report.documents_kept) == (1, 0)
        assert await other.list_whole_documents(None, 9) == await backend.list_whole_documents(None, 9)
        await other.put_document(replace(new, body="three"))
        report = await copied(backend, other)
        assert (report.documents, report.documents_kept) == (0, 0)
        (left,) = report.documents_left
        assert (left.document, left.is_refused) == (DocumentName("", "memory", "repl", "", "d"), False)
        assert left.reason == "memory 'd': the target has it in a later state"
        assert [row.body for row in await other.list_whole_documents(None, 9)] == ["three"]

    async def test_another_document_of_the_same_time_stays_and_is_reported(
        self, backend: Backend, other: Backend
    ) -> None:
        info = await backend.put_document(NewDocument("memory", "d", "one", "user", space="repl"))
        (row,) = await backend.list_whole_documents(None, 9)
        assert (row.changed_at, row.id) == (info.changed_us, info.id)
        written = row._replace(body="two", digest=payload_digest("two"))
        assert await other.write_documents([written]) == ["written"]
        report = await copy_store(Store(backend), Store(other))
        assert not report.is_complete
        assert [left.is_refused for left in report.documents_left] == [True]
        assert await other.list_whole_documents(None, 9) == [written]

    # -- copying again ----------------------------------------------------------------------------------------------

    async def test_copying_again_writes_nothing(self, backend: Backend, other: Backend) -> None:
        await make_everything(backend)
        await copied(backend, other)
        async with unchanged(other):
            report = await copied(backend, other)
        assert (report.trees_copied, report.trees_refreshed, report.sessions, report.calls) == (0, 0, 0, 0)
        (copy, *_) = await whole_trees(backend)
        async with unchanged(other):
            assert (await other.write_whole_tree(copy)).state == "same"

    async def test_copying_again_brings_what_is_new(self, backend: Backend, other: Backend) -> None:
        session = await make_everything(backend)
        await copied(backend, other)
        await add(backend, session.id, user("more"), assistant("paid", tokens=11))
        await backend.fork(session.id, STORED, NewSession(id="new fork"))
        await backend.set_label(session.id, (await path_ids(backend, session.id))[0], None)
        report = await copied(backend, other)
        assert (report.trees_copied, report.trees_refreshed) == (0, 1)
        assert await told(other) == await told(backend)
        assert (await other.info()).ledger_rows == (await backend.info()).ledger_rows

    @inputs("change", ["title", "metadata", "completed", "label", "link", "move", "undo", "retract", "append", "fork"])
    async def test_every_change_is_brought(self, backend: Backend, other: Backend, change: str) -> None:
        session, (first, leaf) = await talked(backend, 2)
        await copied(backend, other)
        match change:
            case "title":
                await backend.update_session(session.id, title="new")
            case "metadata":
                await backend.update_session(session.id, metadata_text='{"new":true}')
            case "completed":
                await backend.update_session(session.id, completed_us=7)
            case "label":
                await backend.set_label(session.id, first, "new")
            case "link":
                await backend.link_task(session.id, UNKNOWN, "new")
            case "move":
                await backend.move(session.id, first)
            case "undo":
                await backend.undo(session.id)
            case "retract":
                await backend.retract(session.id, leaf)
            case "append":
                await add(backend, session.id, user("new"))
            case "fork":
                await backend.fork(session.id, first, NewSession())
        assert (await copied(backend, other)).trees_refreshed == 1
        assert await told(other) == await told(backend)

    async def test_sessions_deleted_from_a_tree_go_from_its_copy_and_what_they_paid_stays(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend, *talk(2), key="k")
        one = await backend.fork(session.id, STORED, NewSession())
        (kept, _) = await add(backend, one.id, assistant("kept", tokens=3), assistant("lost", tokens=5))
        two = await backend.fork(one.id, kept, NewSession())
        await copied(backend, other)
        await backend.delete_tree(session.id)
        await backend.delete_tree(one.id)
        report = await copied(backend, other)
        assert set(report.removed_ids) == {session.id, one.id}
        assert await told(other) == await told(backend)
        assert (await other.info()).ledger_rows == 3
        assert (await copied(backend, other)).calls == 0
        await backend.delete_tree(two.id)
        await other.delete_tree(two.id)
        assert (await copied(backend, other)).calls == 0
        assert (await other.info()).ledger_rows == 3

    async def test_a_tree_deleted_since_is_reported_and_stays(self, backend: Backend, other: Backend) -> None:
        session, stays = await new_session(backend, *talk(2)), await new_session(backend, user())
        await copied(backend, other)
        await add(backend, session.id, assistant("not copied", tokens=9))
        await backend.delete_tree(session.id)
        report = await copied(backend, other)
        assert (report.only_in_target, report.only_in_target_ids, report.calls) == (1, (session.id,), 1)
        assert set(await told(other)) == {session.id, stays.id}
        await other.delete_tree(session.id)
        report = await copied(backend, other)
        assert (report.only_in_target, report.calls) == (0, 0)
        assert (await other.info()).ledger_rows == (await backend.info()).ledger_rows == 2

    async def test_a_tree_deleted_in_the_target_comes_again_with_what_it_paid(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend, *talk(4))
        await copied(backend, other)
        await other.delete_tree(session.id)
        report = await copied(backend, other)
        assert report.trees_copied == 1
        assert await told(other) == await told(backend)
        assert (await other.info()).ledger_rows == 2
        assert await other.list_gone_payers(-1, 10) == []

    async def test_a_tree_that_comes_again_has_the_sums_of_the_calls_that_are_there(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend, *talk(4))
        await copied(backend, other)
        (tree,) = await whole_trees(backend)
        (row,) = tree.sessions
        await other.delete_tree(session.id)
        # As it was written before its calls had prices.
        unpriced = [call._replace(cost=None) for call in tree.calls]
        before = replace(tree, calls=unpriced, sessions=[row._replace(spent_cost=0, unpriced_calls=len(unpriced))])
        await other.write_whole_tree(before)
        there = existing(await other.get_session(session.id))
        assert (there.spent_picodollars, there.unpriced_calls) == (row.spent_cost, 0)
        assert (await other.verify()).problems == []

    async def test_a_session_deleted_before_it_was_copied_anew_takes_its_calls_along(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        (head,) = await backend.list_trees(-1, 10)
        await copied(backend, other)
        (kept,) = await add(backend, session.id, assistant("more", tokens=7))
        second = await backend.fork(session.id, kept, NewSession())
        await backend.delete_tree(session.id)
        # As if the copy had come as far as the ledger, having read the tree before the last steps.
        await other.write_gone_payers(await backend.list_gone_payers(-1, 10))
        await copied(backend, other)
        assert await told(other) == await told(backend)
        assert {each.payer.session_id for each in await other.list_gone_payers(-1, 10)} == {session.id}
        assert len(await other.list_gone_payers(-1, 10)) == 1
        assert {fork.id, second.id} == set(await told(other))
        assert (await backend.list_trees(-1, 10))[0].tree_id == head.tree_id

    # -- what is refused --------------------------------------------------------------------------------------------

    async def refused_to_write(self, source: Backend, target: Backend) -> SessionExists:
        """Return why the one tree of the source is refused; it changes nothing, and a copy reports the same."""
        (copy,) = await whole_trees(source)
        (standing,) = await target.compare_trees([copy.head])
        assert standing.state == "refused"
        caught = await refusal(target, SessionExists, target.write_whole_tree(copy))
        async with unchanged(target):
            report = await copy_store(Store(source), Store(target))
        assert [(each.session_id, each.reason) for each in report.refused] == [
            (caught.value.session, str(caught.value))
        ]
        assert not report.is_complete
        assert caught.value.session in str(caught.value)
        return caught.value

    async def test_another_session_of_the_same_id_is_left_alone(self, backend: Backend, other: Backend) -> None:
        await backend.create_session(NewSession(id="same"))
        await add(backend, "same", user("ours"))
        await other.create_session(NewSession(id="same"))
        assert "not a copy" in str(await self.refused_to_write(backend, other))
        await other.delete_tree("same")
        await copied(backend, other)

    async def test_a_key_that_is_taken_is_refused(self, backend: Backend, other: Backend) -> None:
        await new_session(backend, user(), key="k", scope="s")
        await other.create_session(NewSession(id="free", key="k"))
        await other.create_session(NewSession(id="holder", key="k", scope="s"))
        assert "'holder'" in str(await self.refused_to_write(backend, other))
        await other.delete_tree("holder")
        assert (await copied(backend, other)).only_in_target_ids == ("free",)

    @pytest.mark.parametrize("change", ["append", "title", "fork", "delete"])
    async def test_a_copy_that_was_changed_is_left_alone(self, backend: Backend, other: Backend, change: str) -> None:
        session = await new_session(backend, *talk(2), key="k")
        fork = await backend.fork(session.id, STORED, NewSession())
        await copied(backend, other)
        match change:
            case "append":
                await add(other, session.id, user("there"))
            case "title":
                await other.update_session(fork.id, title="there")
            case "fork":
                await other.fork(session.id, STORED, NewSession(id="another"))
            case "delete":
                await other.delete_tree(fork.id)
        await add(backend, session.id, user("here"), user("and here"))
        assert "has been changed in the target" in str(await self.refused_to_write(backend, other))
        for session_id in await told(other):
            await other.delete_tree(session_id)
        await copied(backend, other)
        assert await told(other) == await told(backend)

    async def test_a_source_that_was_set_back_is_refused(self, backend: Backend, other: Backend) -> None:
        session = await new_session(backend, *talk(2))
        before = existing(await backend.read_whole_tree((await backend.list_trees(-1, 1))[0].tree_id))
        await add(backend, session.id, user("later"))
        await copied(backend, other)
        caught = await refusal(other, SessionExists, other.write_whole_tree(before))
        assert "later revision" in str(caught.value)
        await add(backend, session.id, user("latest"))
        (after,) = await whole_trees(backend)
        lost = next(entry.id for entry in after.entries if entry.depth == 2)
        other_way = [entry._replace(id="went-another-way") if entry.id == lost else entry for entry in after.entries]
        caught = await refusal(other, SessionExists, other.write_whole_tree(replace(after, entries=other_way)))
        assert lost in str(caught.value)

    async def test_an_id_that_was_used_again_is_another_session(self, backend: Backend, other: Backend) -> None:
        for text in ("first", "second"):
            await backend.create_session(NewSession(id="again"))
            await add(backend, "again", user(text))
            if text == "first":
                await copied(backend, other)
                await backend.delete_tree("again")
        assert "another session" in str(await self.refused_to_write(backend, other))

    async def test_a_tree_that_is_several_in_the_target_is_refused(self, backend: Backend, other: Backend) -> None:
        session = await new_session(backend, user())
        (alone,) = await whole_trees(backend)
        fork = await backend.fork(session.id, None, NewSession())
        (both,) = await whole_trees(backend)
        forked = replace(both, sessions=[row for row in both.sessions if row.id == fork.id], lanes=[], entries=[])
        await other.write_whole_tree(alone)
        await other.write_whole_tree(forked)
        assert "several trees" in str(await self.refused_to_write(backend, other))

    async def test_a_paid_call_that_another_session_has_reported_is_refused(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend, placed(assistant("paid", tokens=3), "the-call"))
        await other.create_session(NewSession(id="theirs"))
        await add(other, "theirs", placed(assistant("paid", tokens=4), "the-call"))
        (copy,) = await whole_trees(backend)
        caught = await refusal(other, SessionExists, other.write_whole_tree(copy))
        assert "the-call" in str(caught.value)
        assert "'theirs'" in str(caught.value)
        await backend.delete_tree(session.id)
        async with unchanged(other):
            assert await other.write_gone_payers(await backend.list_gone_payers(-1, 10)) == 0

    async def test_the_others_are_copied_all_the_same(self, backend: Backend, other: Backend) -> None:
        sessions = [await new_session(backend, *talk(2)) for _ in range(5)]
        await other.create_session(NewSession(id=sessions[2].id))
        report = await copy_store(Store(backend), Store(other))
        assert [refusal.session_id for refusal in report.refused] == [sessions[2].id]
        assert report.trees_copied == 4
        with pytest.raises(EntryNotFound):
            await path_ids(other, sessions[2].id, (await path_ids(backend, sessions[2].id))[0])

    async def test_what_was_in_the_way_and_is_brought_up_to_date_first_is_no_longer_in_the_way(
        self, backend: Backend, other: Backend
    ) -> None:
        session = await new_session(backend, user())
        await backend.fork(session.id, STORED, NewSession(id="fork", key="k"))
        await copied(backend, other)
        await backend.delete_tree("fork")
        await backend.create_session(NewSession(id="other", key="k"))
        await backend.create_session(NewSession(id="fork"))
        report = await copied(backend, other)
        assert report.removed_ids == ("fork",)
        assert await told(other) == await told(backend)
