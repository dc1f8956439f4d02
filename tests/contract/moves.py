"""The contract: moving the leaf, labels, and what a retracted entry disappears from."""

from __future__ import annotations

import pytest

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import STORED, Mark, NewSession, Note
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, InvalidEntry, SessionNotFound
from tests.checks import Refusals, refused, unchanged
from tests.samples import (
    UNKNOWN,
    add,
    assistant,
    compaction,
    context_of,
    entries_of,
    new_session,
    path_ids,
    placed,
    session_info,
    talk,
    tree_ids,
    user,
)


class MoveContract:
    """Moves, retractions, labels."""

    async def test_the_leaf_moves_to_any_entry_the_session_sees_or_to_none(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
        await backend.move(session.id, first)
        (sibling,) = await add(backend, session.id, user())
        leaf: str | None = sibling
        revision = 3
        for to in (third, second, None, sibling, first):
            moved = await backend.move(session.id, to)
            revision += 1
            assert (moved.from_id, moved.to_id, moved.revision) == (leaf, to, revision)
            assert (moved.reason, moved.replayed) == ("move", False)
            info = await session_info(backend, session.id)
            assert (info.leaf_id, info.revision, info.entry_count) == (to, revision, 4)
            leaf = to
        assert await tree_ids(backend, session.id) == [first, second, third, sibling]

    async def test_a_move_is_one_change_of_the_feed_with_its_reason(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second = await add(backend, session.id, *talk(2))
        moved = await backend.move(session.id, first, reason="rewind", note=Note("somebody"))
        assert moved.reason == "rewind"
        (change,) = await backend.changes(session.id, 1, 10)
        assert (change.revision, change.reason, change.entries) == (2, "rewind", ())
        assert (change.from_id, change.to_id) == (second, first)

    async def test_a_move_to_where_the_leaf_is_changes_nothing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        empty = await new_session(backend)
        async with unchanged(backend):
            moved = await backend.move(session.id, session.leaf_id)
            nowhere = await backend.move(empty.id, None)
        assert (moved.from_id, moved.to_id, moved.revision) == (session.leaf_id, session.leaf_id, session.revision)
        assert (nowhere.from_id, nowhere.to_id, nowhere.revision) == (None, None, empty.revision)

    async def test_a_fork_moves_to_what_it_inherited(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
        fork = await backend.fork(session.id, second, NewSession())
        await backend.move(fork.id, None)
        await backend.move(fork.id, second)
        await backend.move(fork.id, first)
        (own,) = await add(backend, fork.id, user())
        await backend.move(fork.id, second)
        assert await tree_ids(backend, fork.id) == [first, second, own]
        async with refused(backend, EntryNotFound):
            await backend.move(fork.id, third)

    @pytest.mark.parametrize("where", ["nowhere", "another tree", "the fork of it"])
    async def test_a_move_to_what_the_session_does_not_see_is_refused(self, backend: Backend, where: str) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        elsewhere = {
            "nowhere": UNKNOWN,
            "another tree": (await new_session(backend, user())).leaf_id,
            "the fork of it": (await add(backend, fork.id, user()))[0],
        }
        async with refused(backend, EntryNotFound) as caught:
            await backend.move(session.id, elsewhere[where])
        assert (caught.value.session_id, caught.value.entry_id) == (session.id, elsewhere[where])

    async def test_a_move_of_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        async with refused(backend, SessionNotFound):
            await backend.move(UNKNOWN, None)

    # -- retraction -----------------------------------------------------------------------------------------------

    async def test_a_retraction_steps_the_leaf_back_and_takes_the_entry_out_of_every_view(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend)
        first, second, failed = await add(backend, session.id, *talk(2), placed(assistant("oops"), "failed"))
        moved = await backend.retract(session.id, failed)
        assert moved is not None
        assert (moved.from_id, moved.to_id, moved.revision, moved.reason) == (failed, second, 2, "retract")
        assert await path_ids(backend, session.id) == [first, second]
        assert [entry_id for entry_id, _ in await context_of(backend, session.id)] == [first, second]
        assert await tree_ids(backend, session.id) == [first, second]
        assert await backend.get_entry(session.id, failed) is None
        assert await backend.match_entry_ids(session.id, "fai") == []
        info = await session_info(backend, session.id)
        assert (info.leaf_id, info.entry_count, info.message_count) == (second, 2, 2)
        assert await backend.read_marks(session.id) == [Mark(failed, "retracted")]

    async def test_a_retracted_entry_can_be_named_by_nothing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        failed = session.leaf_id
        assert failed is not None
        await backend.retract(session.id, failed)
        (first,) = await path_ids(backend, session.id)
        refusals = Refusals(backend)
        async with refusals.refused(EntryNotFound):
            await backend.move(session.id, failed)
        async with refusals.refused(EntryNotFound):
            await backend.append(session.id, [user()], expected=failed, on_conflict="branch")
        async with refusals.refused(EntryNotFound):
            await backend.append(session.id, [compaction(failed)])
        async with refusals.refused(EntryNotFound):
            await backend.import_entries(session.id, [placed(user(), "x", failed)], leaf="x")
        async with refusals.refused(EntryNotFound):
            await backend.import_entries(session.id, [], leaf=failed)
        async with refusals.refused(EntryNotFound):
            await backend.fork(session.id, failed, NewSession())
        async with refusals.refused(EntryNotFound):
            await backend.set_label(session.id, failed, "x")
        async with refusals.refused(EntryNotFound):
            await backend.is_ancestor(session.id, first, failed)
        for read in (backend.read_path, backend.read_context, backend.read_turns):
            with pytest.raises(EntryNotFound):
                await read(session.id, leaf=failed)
        with pytest.raises(EntryNotFound):
            await backend.read_usage(session.id, None, leaf=failed)
        assert not (await backend.read_usage(session.id, failed)).on_path
        assert entries_of(await backend.read_path_since(session.id, failed)) == []
        async with refusals.refused(InvalidEntry):
            await backend.append(session.id, [placed(user(), failed)])

    async def test_a_retraction_holds_for_one_session_alone(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        failed = session.leaf_id
        assert failed is not None
        fork = await backend.fork(session.id, failed, NewSession())
        await backend.retract(session.id, failed)
        assert (await path_ids(backend, fork.id))[-1] == failed
        assert await backend.get_entry(fork.id, failed) is not None
        assert await backend.read_marks(fork.id) == []
        (below,) = await add(backend, fork.id, user())
        assert (await path_ids(backend, fork.id))[-2:] == [failed, below]
        assert failed not in await tree_ids(backend, session.id)

    async def test_a_fork_may_retract_what_it_inherited_and_counts_only_its_own(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        failed = session.leaf_id
        assert failed is not None
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, session.id, user("the source's child does not matter to the fork"))
        assert await backend.retract(fork.id, failed) is not None
        info = await session_info(backend, fork.id)
        assert (info.entry_count, info.message_count) == (0, 0)
        assert await tree_ids(backend, fork.id) == (await tree_ids(backend, session.id))[:1]
        assert (await session_info(backend, session.id)).entry_count == 3
        assert await backend.undo(fork.id) is not None
        assert (await session_info(backend, fork.id)).entry_count == 0
        assert failed in await tree_ids(backend, fork.id)

    async def test_a_retraction_keeps_the_cost_the_ledger_and_the_feed(self, backend: Backend) -> None:
        session = await new_session(backend, user(), assistant("oops", tokens=7, dollars=0.5))
        assert session.leaf_id is not None
        rows = (await backend.info()).ledger_rows
        await backend.retract(session.id, session.leaf_id)
        info = await session_info(backend, session.id)
        assert (info.spent_tokens, info.spent_picodollars) == (7, 5 * 10**11)
        assert (await backend.info()).ledger_rows == rows
        assert (await backend.read_usage(session.id, None)).usage.total_tokens == 0
        appended, retracted = await backend.changes(session.id, 0, 10)
        assert [entry.id for entry in appended.entries][-1] == session.leaf_id
        assert (retracted.reason, retracted.from_id, retracted.entries) == ("retract", session.leaf_id, ())

    async def test_what_is_no_childless_leaf_message_is_not_retracted(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
        async with unchanged(backend):
            assert await backend.retract(session.id, second) is None
            assert await backend.retract(session.id, UNKNOWN) is None
        await backend.move(session.id, second)
        async with unchanged(backend):
            assert await backend.retract(session.id, second) is None
            assert await backend.retract(session.id, third) is None
        await backend.move(session.id, None)
        async with unchanged(backend):
            assert await backend.retract(session.id, first) is None

    async def test_only_messages_are_retracted(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        assert session.leaf_id is not None
        others: list[NewEntry] = [
            compaction(session.leaf_id),
            NewEntry.branch_summary("x", from_id=None),
            NewEntry.custom("custom_message", {"content": "x"}),
        ]
        for other in others:
            (entry_id,) = await add(backend, session.id, other)
            async with unchanged(backend):
                assert await backend.retract(session.id, entry_id) is None

    async def test_a_message_whose_only_children_were_retracted_can_be_retracted(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids = await add(backend, session.id, *talk(3))
        for entry_id in ids[::-1]:
            assert await backend.retract(session.id, entry_id) is not None
        info = await session_info(backend, session.id)
        assert (info.leaf_id, info.entry_count, info.message_count) == (None, 0, 0)
        assert await tree_ids(backend, session.id) == []
        assert [mark.entry_id for mark in await backend.read_marks(session.id)] == sorted(ids)

    async def test_after_a_retraction_the_history_goes_on_below_the_parent(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, failed = await add(backend, session.id, *talk(2))
        await backend.retract(session.id, failed)
        (again,) = await add(backend, session.id, assistant("better"))
        assert await path_ids(backend, session.id) == [first, again]
        assert await tree_ids(backend, session.id) == [first, again]

    # -- labels ---------------------------------------------------------------------------------------------------

    async def test_labels_are_set_replaced_and_cleared(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second = await add(backend, session.id, *talk(2))
        await backend.set_label(session.id, second, "good")
        await backend.set_label(session.id, first, "start 🚩")
        await backend.set_label(session.id, second, "better")
        marks = await backend.read_marks(session.id)
        assert marks == sorted(
            [Mark(first, "label", "start 🚩"), Mark(second, "label", "better")], key=lambda mark: mark.entry_id
        )
        await backend.set_label(session.id, first, "")
        await backend.set_label(session.id, second, None)
        assert await backend.read_marks(session.id) == []
        assert (await session_info(backend, session.id)).revision == 6

    async def test_clearing_a_label_that_is_not_there_changes_nothing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        assert session.leaf_id is not None
        async with unchanged(backend):
            await backend.set_label(session.id, session.leaf_id, None)
            await backend.set_label(session.id, session.leaf_id, "")

    async def test_marks_are_in_order_of_entry_and_kind(self, backend: Backend) -> None:
        ids = ["b", "a", "B", "é", "~"]
        session = await new_session(backend, *(placed(user(), entry_id) for entry_id in ids))
        for entry_id in ids:
            await backend.set_label(session.id, entry_id, f"label {entry_id}")
        await backend.retract(session.id, "~")
        marks = await backend.read_marks(session.id)
        assert [(mark.entry_id, mark.kind) for mark in marks if mark.entry_id != "~"] == [
            (entry_id, "label") for entry_id in ("B", "a", "b", "é")
        ]
        assert Mark("~", "retracted") in marks
        assert marks == sorted(marks, key=lambda mark: (mark.entry_id, mark.kind))

    async def test_a_label_changes_neither_path_nor_context_nor_undo(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        assert session.leaf_id is not None
        path, context = await path_ids(backend, session.id), await context_of(backend, session.id)
        await backend.set_label(session.id, session.leaf_id, "x")
        assert (await path_ids(backend, session.id), await context_of(backend, session.id)) == (path, context)
        (change,) = await backend.changes(session.id, session.revision, 10)
        assert (change.reason, change.entries) == (None, ())
        undone = await backend.undo(session.id)
        assert undone is not None
        assert (undone.from_id, undone.to_id) == (session.leaf_id, None)

    async def test_a_label_on_what_the_session_does_not_see_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        other = await new_session(backend, user())
        assert other.leaf_id is not None
        refusals = Refusals(backend)
        for entry_id in (UNKNOWN, other.leaf_id):
            for label in ("x", None):
                async with refusals.refused(EntryNotFound):
                    await backend.set_label(session.id, entry_id, label)
        async with refusals.refused(SessionNotFound):
            await backend.set_label(UNKNOWN, other.leaf_id, "x")
