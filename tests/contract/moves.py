"""The contract: what moves the leaf, what undoes that, and the log of it all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import STORED, Edit, LogLine, Mark, Navigated, NewSession, Note
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, InvalidArgument, InvalidEntry, LeafConflict, SessionNotFound
from tests.checks import Refusals, raises, refusal, unchanged
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
    talked,
    tree_ids,
    user,
)
from tests.tables import inputs
from tests.values import existing


async def undone(backend: Backend, session_id: str) -> str | None:
    """Undo one operation, which must be there, and return the leaf."""
    moved = existing(await backend.undo(session_id))
    return moved.to_id


async def redone(backend: Backend, session_id: str) -> str | None:
    """Redo one operation, which must be there, and return the leaf."""
    moved = existing(await backend.redo(session_id))
    return moved.to_id


LONGEST_BY, LONGEST_WHY = 200, 2_000


async def log_of(backend: Backend, session_id: str) -> list[LogLine]:
    """Return the whole log, oldest first, having checked that pages give the same."""
    lines = await backend.read_log(session_id, before=None, limit=1000)
    paged: list[LogLine] = []
    while page := await backend.read_log(session_id, before=paged[-1].revision if paged else None, limit=3):
        paged += page
    assert paged == lines
    info = await session_info(backend, session_id)
    assert [line.revision for line in lines] == list(range(info.revision, 0, -1))
    return lines[::-1]


async def gone_back(backend: Backend, session_id: str, revision: int, *, before: bool = False) -> LogLine:
    """Go back to a line, which must change something, and return the new line, which is the newest of the log."""
    line = existing(await backend.go_back(session_id, revision, before=before))
    assert (await backend.read_log(session_id, before=None, limit=1)) == [line]
    return line


class MoveContract:
    """Moving the leaf, labels, and what a retracted entry disappears from."""

    async def test_the_leaf_moves_to_any_entry_the_session_sees_or_to_none(self, backend: Backend) -> None:
        session, (first, second, third) = await talked(backend, 3)
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
        session, (first, second) = await talked(backend, 2)
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
        session, (first, second, third) = await talked(backend, 3)
        fork = await backend.fork(session.id, second, NewSession())
        await backend.move(fork.id, None)
        await backend.move(fork.id, second)
        await backend.move(fork.id, first)
        (own,) = await add(backend, fork.id, user())
        await backend.move(fork.id, second)
        assert await tree_ids(backend, fork.id) == [first, second, own]
        await refusal(backend, EntryNotFound, backend.move(fork.id, third))

    @inputs("where", ["nowhere", "another tree", "the fork of it"])
    async def test_a_move_to_what_the_session_does_not_see_is_refused(self, backend: Backend, where: str) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        elsewhere = {
            "nowhere": UNKNOWN,
            "another tree": (await new_session(backend, user())).leaf_id,
            "the fork of it": (await add(backend, fork.id, user()))[0],
        }
        caught = await refusal(backend, EntryNotFound, backend.move(session.id, elsewhere[where]))
        assert (caught.value.session_id, caught.value.entry_id) == (session.id, elsewhere[where])

    async def test_a_move_of_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        await refusal(backend, SessionNotFound, backend.move(UNKNOWN, None))

    # -- retraction -----------------------------------------------------------------------------------------------

    async def test_a_retraction_steps_the_leaf_back_and_takes_the_entry_out_of_every_view(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend)
        first, second, failed = await add(backend, session.id, *talk(2), placed(assistant("oops"), "failed"))
        moved = existing(await backend.retract(session.id, failed))
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
        failed = existing(session.leaf_id)
        await backend.retract(session.id, failed)
        (first,) = await path_ids(backend, session.id)
        refusals = Refusals(backend)
        await refusals.of(EntryNotFound, backend.move(session.id, failed))
        await refusals.of(EntryNotFound, backend.append(session.id, [user()], expected=failed, on_conflict="branch"))
        await refusals.of(EntryNotFound, backend.append(session.id, [compaction(failed)]))
        await refusals.of(EntryNotFound, backend.import_entries(session.id, [placed(user(), "x", failed)], leaf="x"))
        await refusals.of(EntryNotFound, backend.import_entries(session.id, [], leaf=failed))
        await refusals.of(EntryNotFound, backend.fork(session.id, failed, NewSession()))
        await refusals.of(EntryNotFound, backend.set_label(session.id, failed, "x"))
        await refusals.of(EntryNotFound, backend.is_ancestor(session.id, first, failed))
        for read in (backend.read_path, backend.read_context, backend.read_turns):
            await raises(EntryNotFound, read(session.id, leaf=failed))
        await raises(EntryNotFound, backend.read_usage(session.id, None, leaf=failed))
        assert not (await backend.read_usage(session.id, failed)).on_path
        assert entries_of(await backend.read_path_since(session.id, failed)) == []
        await refusals.of(InvalidEntry, backend.append(session.id, [placed(user(), failed)]))

    async def test_a_retraction_holds_for_one_session_alone(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        failed = existing(session.leaf_id)
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
        failed = existing(session.leaf_id)
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
        session, (first, second, third) = await talked(backend, 3)
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
        session, ids = await talked(backend, 3)
        for entry_id in ids[::-1]:
            assert await backend.retract(session.id, entry_id) is not None
        info = await session_info(backend, session.id)
        assert (info.leaf_id, info.entry_count, info.message_count) == (None, 0, 0)
        assert await tree_ids(backend, session.id) == []
        assert [mark.entry_id for mark in await backend.read_marks(session.id)] == sorted(ids)

    async def test_after_a_retraction_the_history_goes_on_below_the_parent(self, backend: Backend) -> None:
        session, (first, failed) = await talked(backend, 2)
        await backend.retract(session.id, failed)
        (again,) = await add(backend, session.id, assistant("better"))
        assert await path_ids(backend, session.id) == [first, again]
        assert await tree_ids(backend, session.id) == [first, again]

    # -- labels ---------------------------------------------------------------------------------------------------

    async def test_labels_are_set_replaced_and_cleared(self, backend: Backend) -> None:
        session, (first, second) = await talked(backend, 2)
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
        undone = existing(await backend.undo(session.id))
        assert (undone.from_id, undone.to_id) == (session.leaf_id, None)

    async def test_a_label_on_what_the_session_does_not_see_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        other = await new_session(backend, user())
        assert other.leaf_id is not None
        refusals = Refusals(backend)
        for entry_id in (UNKNOWN, other.leaf_id):
            for label in ("x", None):
                await refusals.of(EntryNotFound, backend.set_label(session.id, entry_id, label))
        await refusals.of(SessionNotFound, backend.set_label(UNKNOWN, other.leaf_id, "x"))


class NavigationContract:
    """Going elsewhere with a summary of what is left, in one transaction."""

    async def test_the_leaf_goes_elsewhere_with_a_summary_as_one_step_of_undo(self, backend: Backend) -> None:
        session, ids = await talked(backend, 4)
        summary = NewEntry.branch_summary("left", from_id=ids[1], abandoned_leaf_id=ids[3], usage={"output": 3})
        went = await backend.navigate(
            session.id, ids[1], summary=summary, label="fork in the road", expected=ids[3], note=Note("me", "because")
        )
        assert went == Navigated(ids[3], went.summary_id, 3, went.summary_id)
        assert went.summary_id is not None
        assert await path_ids(backend, session.id) == [*ids[:2], went.summary_id]
        entry = existing(await backend.get_entry(session.id, went.summary_id))
        assert entry.fields["abandonedLeafId"] == ids[3]
        assert await backend.read_marks(session.id) == [Mark(went.summary_id, "label", "fork in the road")]
        labelled, line, _ = await backend.read_log(session.id, before=None, limit=3)
        assert (line.what, line.from_id, line.to_id, line.by, line.why) == (
            "move",
            ids[3],
            went.summary_id,
            "me",
            "because",
        )
        assert labelled.what == "label"
        assert (await session_info(backend, session.id)).spent_tokens == 23
        await backend.undo(session.id)
        assert await path_ids(backend, session.id) == list(ids)
        await backend.redo(session.id)
        assert await path_ids(backend, session.id) == [*ids[:2], went.summary_id]

    async def test_without_a_summary_the_target_is_labelled(self, backend: Backend) -> None:
        session, ids = await talked(backend, 3)
        went = await backend.navigate(session.id, ids[0], label="here", labelled=ids[1])
        assert went == Navigated(ids[2], ids[0], 3)
        assert await backend.read_marks(session.id) == [Mark(ids[1], "label", "here")]
        assert await backend.navigate(session.id, ids[0]) == Navigated(ids[0], ids[0], 3)
        assert await backend.navigate(session.id, None) == Navigated(ids[0], None, 4)

    async def test_a_summary_can_stand_at_the_root_and_in_a_fork(self, backend: Backend) -> None:
        session, ids = await talked(backend, 2)
        summary = NewEntry.branch_summary("all of it", from_id="root", abandoned_leaf_id=ids[1])
        went = await backend.navigate(session.id, None, summary=summary)
        assert await path_ids(backend, session.id) == [went.summary_id]
        (below,) = await add(backend, session.id, user())
        assert await path_ids(backend, session.id) == [went.summary_id, below]

    async def test_a_navigation_that_cannot_be_changes_nothing(self, backend: Backend) -> None:
        session, ids = await talked(backend, 2)
        summary = NewEntry.branch_summary("left", from_id=None)
        async with unchanged(backend):
            await raises(LeafConflict, backend.navigate(session.id, ids[0], summary=summary, expected=ids[0]))
            await raises(EntryNotFound, backend.navigate(session.id, UNKNOWN, summary=summary))
            await raises(EntryNotFound, backend.navigate(session.id, ids[0], label="x", labelled=UNKNOWN))


class UndoContract:
    """Undo and redo."""

    async def test_undo_walks_back_through_every_kind_of_operation_and_redo_forward_again(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend)
        leaves: list[str | None] = [None]

        async def remember() -> None:
            leaves.append((await session_info(backend, session.id)).leaf_id)

        first, second, third = await add(backend, session.id, *talk(3))
        await remember()
        await add(backend, session.id, compaction(second))
        await remember()
        await backend.move(session.id, first)
        await remember()
        await backend.move(session.id, third, reason="rewind")
        await remember()
        (failed,) = await add(backend, session.id, user())
        await remember()
        await backend.retract(session.id, failed)
        await remember()
        await backend.import_entries(session.id, [placed(user(), "i", first)], leaf="i")
        await remember()
        for leaf in leaves[-2::-1]:
            assert await undone(backend, session.id) == leaf
        async with unchanged(backend):
            assert await backend.undo(session.id) is None
        for leaf in leaves[1:]:
            assert await redone(backend, session.id) == leaf
        async with unchanged(backend):
            assert await backend.redo(session.id) is None
        for leaf in leaves[-2::-1]:
            assert await undone(backend, session.id) == leaf

    async def test_undo_and_redo_say_what_they_did(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        back = existing(await backend.undo(session.id, note=Note("somebody")))
        forth = existing(await backend.redo(session.id, note=Note("somebody")))
        assert (back.from_id, back.to_id, back.revision, back.reason) == (session.leaf_id, None, 2, "undo")
        assert (forth.from_id, forth.to_id, forth.revision, forth.reason) == (None, session.leaf_id, 3, "redo")
        changes = await backend.changes(session.id, 1, 10)
        assert [(change.reason, change.from_id, change.to_id) for change in changes] == [
            ("undo", session.leaf_id, None),
            ("redo", None, session.leaf_id),
        ]

    async def test_undo_of_an_append_keeps_the_entries(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        assert await undone(backend, session.id) is None
        assert len(await tree_ids(backend, session.id)) == 3
        assert (await session_info(backend, session.id)).entry_count == 3
        moved = await backend.move(session.id, session.leaf_id)
        assert moved.to_id == session.leaf_id

    async def test_a_batch_is_undone_as_one(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await add(backend, session.id, *talk(3))
        assert await undone(backend, session.id) == session.leaf_id

    async def test_undo_of_a_retraction_brings_the_entry_back_and_redo_takes_it_away_again(
        self, backend: Backend
    ) -> None:
        session, (first, failed) = await talked(backend, 2)
        await backend.retract(session.id, failed)
        for _ in range(2):
            assert await undone(backend, session.id) == failed
            assert await tree_ids(backend, session.id) == [first, failed]
            assert await backend.get_entry(session.id, failed) is not None
            assert await backend.read_marks(session.id) == []
            info = await session_info(backend, session.id)
            assert (info.entry_count, info.message_count) == (2, 2)
            assert await redone(backend, session.id) == first
            assert await tree_ids(backend, session.id) == [first]
            assert await backend.get_entry(session.id, failed) is None
            info = await session_info(backend, session.id)
            assert (info.entry_count, info.message_count) == (1, 1)

    async def test_retractions_up_the_chain_come_back_in_turn(self, backend: Backend) -> None:
        session, (first, second, third) = await talked(backend, 3)
        await backend.retract(session.id, third)
        await backend.retract(session.id, second)
        assert await undone(backend, session.id) == second
        assert await tree_ids(backend, session.id) == [first, second]
        assert await undone(backend, session.id) == third
        assert await tree_ids(backend, session.id) == [first, second, third]

    @inputs("operation", ["append", "move", "retract", "import"])
    async def test_a_new_operation_clears_redo(self, backend: Backend, operation: str) -> None:
        session, (first, second) = await talked(backend, 2)
        await backend.move(session.id, first)
        (other,) = await add(backend, session.id, user())
        await backend.move(session.id, None)
        assert await undone(backend, session.id) == other
        if operation == "append":
            await add(backend, session.id, user())
        elif operation == "move":
            await backend.move(session.id, second)
        elif operation == "retract":
            assert await backend.retract(session.id, other) is not None
        else:
            await backend.import_entries(session.id, [placed(user(), "x", first)], leaf="x")
        async with unchanged(backend):
            assert await backend.redo(session.id) is None

    async def test_what_is_no_operation_is_neither_undone_nor_clears_redo(self, backend: Backend) -> None:
        session = await new_session(backend)
        (first,) = await add(backend, session.id, user())
        (second,) = await add(backend, session.id, user())
        assert await undone(backend, session.id) == first
        await backend.set_label(session.id, first, "x")
        await backend.update_session(session.id, title="x")
        await backend.link_task(session.id, UNKNOWN, "t")
        await backend.append(session.id, talk(2), expected=second, on_conflict="branch")
        await backend.fork(session.id, first, NewSession())
        assert await redone(backend, session.id) == second
        await backend.set_label(session.id, first, None)
        await backend.update_session(session.id, title="y")
        await backend.create_task(session.id, "u", NewSession())
        await backend.append(session.id, talk(2), expected=first, on_conflict="branch")
        assert await undone(backend, session.id) == first
        assert await undone(backend, session.id) is None
        async with unchanged(backend):
            assert await backend.undo(session.id) is None

    async def test_a_move_to_where_the_leaf_is_does_not_clear_redo(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await backend.undo(session.id)
        await backend.move(session.id, None)
        await backend.append(session.id, [])
        assert await redone(backend, session.id) == session.leaf_id

    async def test_after_undo_and_a_new_operation_undo_skips_what_was_undone(self, backend: Backend) -> None:
        session = await new_session(backend)
        (first,) = await add(backend, session.id, user("first"))
        await add(backend, session.id, user("second"))
        assert await undone(backend, session.id) == first
        (third,) = await add(backend, session.id, user("third"))
        (fourth,) = await add(backend, session.id, user("fourth"))
        assert await path_ids(backend, session.id) == [first, third, fourth]
        assert await undone(backend, session.id) == third
        assert await undone(backend, session.id) == first
        assert await redone(backend, session.id) == third
        assert await undone(backend, session.id) == first
        assert await undone(backend, session.id) is None
        async with unchanged(backend):
            assert await backend.undo(session.id) is None
        assert [await redone(backend, session.id) for _ in range(3)] == [first, third, fourth]

    async def test_a_retraction_is_not_done_again_once_a_branch_grew_below_the_entry(self, backend: Backend) -> None:
        session = await new_session(backend)
        (first,) = await add(backend, session.id, user())
        (failed,) = await add(backend, session.id, user())
        await backend.retract(session.id, failed)
        assert await undone(backend, session.id) == failed
        assert await undone(backend, session.id) == first
        landed = await backend.append(session.id, [user()], expected=failed, on_conflict="branch")
        assert await redone(backend, session.id) == failed
        async with unchanged(backend):
            assert await backend.redo(session.id) is None
        assert await path_ids(backend, session.id, landed.entry_ids[0]) == [first, failed, *landed.entry_ids]

    async def test_a_session_without_operations_has_nothing_to_undo(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        empty = await new_session(backend)
        for session_id in (fork.id, empty.id):
            async with unchanged(backend):
                assert await backend.undo(session_id) is None
                assert await backend.redo(session_id) is None

    async def test_undo_of_one_session_leaves_its_fork_alone(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        (own,) = await add(backend, fork.id, user())
        await backend.undo(session.id)
        assert (await path_ids(backend, fork.id))[-1] == own
        assert await undone(backend, fork.id) == session.leaf_id

    async def test_undo_and_redo_in_a_session_that_is_not_there_are_refused(self, backend: Backend) -> None:
        refusals = Refusals(backend)
        await refusals.of(SessionNotFound, backend.undo(UNKNOWN))
        await refusals.of(SessionNotFound, backend.redo(UNKNOWN))


class LogContract:
    """The log of a session, and going back to any line of it."""

    async def test_the_log_has_a_line_for_each_revision_with_who_and_why(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second = await add(backend, session.id, user("one\ntwo"), *talk(1, 1))
        (summary,) = await add(backend, session.id, compaction(second, "so far"))
        await backend.append(session.id, [user("beside")], expected=first, on_conflict="branch")
        await backend.move(session.id, second, reason="rewind", note=Note("ann", "too long"))
        await backend.undo(session.id, note=Note("bob", "it was fine"))
        await backend.redo(session.id)
        (excluded,) = await add(backend, session.id, NewEntry.exclusion(first, by="ann", why="a detour"))
        await add(backend, session.id, NewEntry.exclusion(first, excluded=False))
        await backend.import_entries(session.id, [placed(user("brought"), "i", first)], leaf="i")
        await backend.retract(session.id, "i", note=Note("eve", "wrong file"))
        await backend.link_task(session.id, UNKNOWN, "t")
        lines = await log_of(backend, session.id)
        assert [(line.what, line.by, line.why, line.refers_to) for line in lines] == [
            ("append", None, None, None),
            ("compaction", None, None, None),
            ("branch", None, None, None),
            ("rewind", "ann", "too long", None),
            ("undo", "bob", "it was fine", 4),
            ("redo", None, None, 4),
            ("exclusion", "ann", "a detour", None),
            ("inclusion", None, None, None),
            ("import", None, None, None),
            ("retract", "eve", "wrong file", None),
            ("task", None, None, None),
        ]
        assert [(line.from_id, line.to_id) for line in lines[:7]] == [
            (None, second),
            (second, summary),
            (summary, summary),
            (summary, second),
            (second, summary),
            (summary, second),
            (second, excluded),
        ]
        assert lines[0].entry_ids == (first, second)
        assert [(line.entry_count, line.kinds, line.words) for line in lines[:3]] == [
            (2, ("message",), "one"),
            (1, ("compaction",), "so far"),
            (1, ("message",), "beside"),
        ]
        assert lines[-1].edits == (Edit("task", None, None, UNKNOWN),)
        assert all(line.at_us is not None for line in lines)

    async def test_edits_are_logged_with_what_was_before_and_after(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        assert session.leaf_id is not None
        entry = session.leaf_id
        await backend.update_session(session.id, title="Red", note=Note("ann", "a name"))
        await backend.update_session(session.id, title=None, metadata_text='{"a":1}')
        await backend.update_session(session.id, completed_us=7)
        await backend.set_label(session.id, entry, "good", note=Note("ann", "it worked"))
        await backend.set_label(session.id, entry, None)
        await backend.set_pin(session.id, entry, True, note=Note("ann", "the task"))
        await backend.set_pin(session.id, entry, False)
        lines = (await log_of(backend, session.id))[1:]
        assert [(line.what, line.by, line.why, line.words) for line in lines] == [
            ("title", "ann", "a name", "Red"),
            ("edit", None, None, '{"a":1}'),
            ("completed", None, None, "7"),
            ("label", "ann", "it worked", "good"),
            ("label", None, None, None),
            ("pin", "ann", "the task", "on"),
            ("pin", None, None, "off"),
        ]
        assert [edit for line in lines for edit in line.edits] == [
            Edit("title", None, None, "Red"),
            Edit("metadata", None, "{}", '{"a":1}'),
            Edit("title", None, "Red", None),
            Edit("completed", None, None, "7"),
            Edit("label", entry, None, "good"),
            Edit("label", entry, "good", None),
            Edit("pin", entry, None, "on"),
            Edit("pin", entry, "on", "off"),
        ]
        assert not any(line.moved_leaf for line in lines)

    async def test_a_line_names_the_first_of_many_entries_and_counts_them_all(self, backend: Backend) -> None:
        session, ids = await talked(backend, 50)
        (line,) = await log_of(backend, session.id)
        assert (line.entry_count, list(line.entry_ids), line.to_id) == (50, ids[:20], ids[-1])

    async def test_a_forks_log_begins_at_its_creation(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession(title="before"))
        assert await log_of(backend, fork.id) == []
        await add(backend, fork.id, user())
        (line,) = await log_of(backend, fork.id)
        assert line.from_id == session.leaf_id
        await gone_back(backend, fork.id, 0)
        assert (await session_info(backend, fork.id)).leaf_id == session.leaf_id

    async def test_every_line_of_the_leaf_can_be_gone_back_to(self, backend: Backend) -> None:
        session = await new_session(backend)
        leaves: list[str | None] = [None]

        async def remember() -> None:
            leaves.append((await session_info(backend, session.id)).leaf_id)

        first, second = await add(backend, session.id, *talk(2))
        await remember()
        await add(backend, session.id, compaction(second))
        await remember()
        await add(backend, session.id, NewEntry.exclusion(second))
        await remember()
        await backend.move(session.id, first)
        await remember()
        await backend.undo(session.id)
        await remember()
        await backend.import_entries(session.id, [placed(user(), "i", first)], leaf="i")
        await remember()
        contexts = [await context_of(backend, session.id, leaf) for leaf in leaves]
        for revision in (0, 3, 1, 6, 2, 5, 4, 0):
            line = await gone_back(backend, session.id, revision)
            assert (line.what, line.refers_to, line.to_id) == ("back", revision, leaves[revision])
            assert await context_of(backend, session.id) == contexts[revision]
            async with unchanged(backend):
                assert await backend.go_back(session.id, revision) is None
        for revision in (4, 5, 2, 6, 1, 3, 0):
            assert existing(await backend.undo(session.id)).to_id == leaves[revision]
        line = await gone_back(backend, session.id, 2, before=True)
        assert line.to_id == leaves[1]

    async def test_what_was_retracted_since_comes_back_and_undo_retracts_it_again(self, backend: Backend) -> None:
        session, (first, second, third) = await talked(backend, 3)
        await backend.retract(session.id, third)
        await backend.retract(session.id, second)
        info = await session_info(backend, session.id)
        line = await gone_back(backend, session.id, 1)
        assert (line.to_id, [edit.what for edit in line.edits]) == (third, ["retracted"])
        for _ in range(2):
            assert await path_ids(backend, session.id) == [first, second, third]
            assert await backend.read_marks(session.id) == []
            assert (await session_info(backend, session.id)).message_count == 3
            await backend.undo(session.id)
            assert await tree_ids(backend, session.id) == [first]
            assert (await session_info(backend, session.id)).message_count == info.message_count == 1
            await backend.redo(session.id)
        await backend.undo(session.id)
        await backend.undo(session.id)
        assert await path_ids(backend, session.id) == [first, second]

    async def test_what_grew_below_keeps_an_entry_from_being_retracted_again(self, backend: Backend) -> None:
        session, (first, failed) = await talked(backend, 2)
        await backend.retract(session.id, failed)
        await gone_back(backend, session.id, 1)
        landed = await backend.append(session.id, [user()], expected=failed)
        await backend.undo(session.id)
        await backend.undo(session.id)
        assert await tree_ids(backend, session.id) == [first, failed, *landed.entry_ids]
        assert (await session_info(backend, session.id)).message_count == 3

    async def test_an_edit_is_gone_back_to_by_its_value(self, backend: Backend) -> None:
        session, (first, second) = await talked(backend, 2)
        await backend.update_session(session.id, title="a", metadata_text='{"n":1}')
        await backend.set_label(session.id, first, "x")
        await backend.set_pin(session.id, second, True)
        await backend.update_session(session.id, title="b", metadata_text='{"n":2}', completed_us=5)
        await backend.set_label(session.id, first, "y")
        await backend.set_pin(session.id, second, False)
        await backend.move(session.id, first)
        assert (await gone_back(backend, session.id, 2)).what == "edit"
        info = await session_info(backend, session.id)
        assert (info.title, info.metadata, info.completed_us, info.leaf_id) == ("a", {"n": 1}, 5, first)
        assert (await gone_back(backend, session.id, 3)).edits == (Edit("label", first, "y", "x"),)
        assert (await gone_back(backend, session.id, 4)).edits == (Edit("pin", second, "off", "on"),)
        assert Mark(second, "pin", "on") in await backend.read_marks(session.id)
        async with unchanged(backend):
            assert await backend.go_back(session.id, 3) is None
        await gone_back(backend, session.id, 5, before=True)
        assert (await session_info(backend, session.id)).completed_us is None
        for revision in (2, 3, 4):
            await gone_back(backend, session.id, revision, before=True)
        assert await backend.read_marks(session.id) == []
        assert (await session_info(backend, session.id)).title is None

    async def test_a_line_is_gone_back_to_also_where_the_source_of_a_fork_is_deleted(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        assert session.leaf_id is not None
        await backend.set_label(fork.id, session.leaf_id, "x")
        await backend.set_label(fork.id, session.leaf_id, None)
        await backend.move(fork.id, None)
        (own,) = await add(backend, fork.id, user())
        await backend.delete_tree(session.id)
        await gone_back(backend, fork.id, 2, before=True)
        assert await backend.read_marks(fork.id) == [Mark(session.leaf_id, "label", "x")]
        await gone_back(backend, fork.id, 0)
        assert len(await path_ids(backend, fork.id)) == 2
        await gone_back(backend, fork.id, 4)
        assert await path_ids(backend, fork.id) == [own]

    async def test_a_mark_on_an_entry_that_was_retracted_is_not_brought_back(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        entry = existing(session.leaf_id)
        await backend.set_label(session.id, entry, "x")
        await backend.set_label(session.id, entry, "y")
        await backend.retract(session.id, entry)
        await refusal(backend, EntryNotFound, backend.go_back(session.id, 2))

    @inputs("revision", [2, 1000, 2**62])
    async def test_a_revision_that_was_not_yet_is_refused(self, backend: Backend, revision: int) -> None:
        session = await new_session(backend, *talk(2))
        await refusal(backend, InvalidArgument, backend.go_back(session.id, revision))

    async def test_going_back_builds_on_the_leaf_that_is_named(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await refusal(backend, LeafConflict, backend.go_back(session.id, 0, expected=None))
        assert await backend.go_back(session.id, 0, expected=session.leaf_id) is not None

    async def test_who_and_why_are_kept_as_given_up_to_a_length(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        assert session.leaf_id is not None
        by, why = "é" * LONGEST_BY, "ß\n" * (LONGEST_WHY // 2)
        await backend.move(session.id, None, note=Note(by, why))
        assert [(line.by, line.why) for line in await log_of(backend, session.id)][1:] == [(by, why)]
        for wrong_by, wrong_why in ((by + "x", None), (None, why + "x"), ("a\0", None), (None, "\ud800")):
            with pytest.raises(InvalidArgument):
                Note(wrong_by, wrong_why)
        assert len(await log_of(backend, session.id)) == 2

    async def test_the_log_of_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        refusals = Refusals(backend)
        await refusals.of(SessionNotFound, backend.read_log(UNKNOWN, before=None, limit=5))
        await refusals.of(SessionNotFound, backend.go_back(UNKNOWN, 0))


class MergingContract:
    """What two paths have in common, and what an append under a key gave."""

    async def test_the_common_ancestor_is_the_deepest_entry_of_both_paths(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        path = [entry.id for entry in (await backend.read_path(session.id)).entries]
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
        await raises(SessionNotFound, backend.common_ancestor(UNKNOWN, session.id))
        await raises(SessionNotFound, backend.common_ancestor(session.id, UNKNOWN))
        await raises(EntryNotFound, backend.common_ancestor(session.id, fork.id, leaf=theirs))
        await raises(EntryNotFound, backend.common_ancestor(fork.id, session.id, other_leaf=theirs))

    async def test_an_append_is_recalled_by_its_key(self, backend: Backend) -> None:
        session = await new_session(backend)
        first = await backend.append(session.id, talk(2), idempotency_key="a")
        await add(backend, session.id, user())
        await backend.fork(session.id, STORED, NewSession(), idempotency_key="b")
        assert await backend.recall_append(session.id, "a") == replace(first, replayed=True)
        assert await backend.recall_append(session.id, "b") is None
        assert await backend.recall_append(session.id, "c") is None
        await raises(SessionNotFound, backend.recall_append(UNKNOWN, "a"))
