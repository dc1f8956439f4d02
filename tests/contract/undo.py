"""The contract: undo and redo."""

from __future__ import annotations

import pytest

from flue_py.core.sessions import STORED, NewSession, Note
from flue_py.db.backend import Backend
from flue_py.errors import SessionNotFound
from tests.checks import Refusals, unchanged
from tests.samples import UNKNOWN, add, compaction, new_session, path_ids, placed, session_info, talk, tree_ids, user


async def undone(backend: Backend, session_id: str) -> str | None:
    """Undo one operation, which must be there, and return the leaf."""
    moved = await backend.undo(session_id)
    assert moved is not None
    return moved.to_id


async def redone(backend: Backend, session_id: str) -> str | None:
    """Redo one operation, which must be there, and return the leaf."""
    moved = await backend.redo(session_id)
    assert moved is not None
    return moved.to_id


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
        back = await backend.undo(session.id, note=Note("somebody"))
        forth = await backend.redo(session.id, note=Note("somebody"))
        assert back is not None
        assert forth is not None
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
        session = await new_session(backend)
        first, failed = await add(backend, session.id, *talk(2))
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
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
        await backend.retract(session.id, third)
        await backend.retract(session.id, second)
        assert await undone(backend, session.id) == second
        assert await tree_ids(backend, session.id) == [first, second]
        assert await undone(backend, session.id) == third
        assert await tree_ids(backend, session.id) == [first, second, third]

    @pytest.mark.parametrize("operation", ["append", "move", "retract", "import"])
    async def test_a_new_operation_clears_redo(self, backend: Backend, operation: str) -> None:
        session = await new_session(backend)
        first, second = await add(backend, session.id, *talk(2))
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
        async with refusals.refused(SessionNotFound):
            await backend.undo(UNKNOWN)
        async with refusals.refused(SessionNotFound):
            await backend.redo(UNKNOWN)
