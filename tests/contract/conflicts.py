"""The contract: two writers never interleave and never erase each other."""

from __future__ import annotations

import pytest

from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, LeafConflict, SessionExists
from tests.checks import Refusals, refused
from tests.samples import UNKNOWN, add, new_session, path_ids, path_of, placed, session_info, talk, tree_ids, user
from tests.sources import OpenBackend, repeating_sources
from tests.together import outcomes, together


class ConflictContract:
    """Comparing the leaf, and landing on a branch."""

    @pytest.mark.parametrize("operation", ["append", "move", "undo", "redo", "import"])
    @pytest.mark.parametrize("expected", ["older", "unknown", "none"])
    async def test_an_operation_on_another_leaf_than_the_stored_one_is_refused(
        self, backend: Backend, operation: str, expected: str
    ) -> None:
        session = await new_session(backend)
        older, _, leaf = await add(backend, session.id, *talk(3))
        named = {"older": older, "unknown": UNKNOWN, "none": None}[expected]
        async with refused(backend, LeafConflict) as caught:
            if operation == "append":
                await backend.append(session.id, [user()], expected=named)
            elif operation == "move":
                await backend.move(session.id, older, expected=named)
            elif operation == "undo":
                await backend.undo(session.id, expected=named)
            elif operation == "redo":
                await backend.redo(session.id, expected=named)
            else:
                await backend.import_entries(session.id, [placed(user(), "a")], leaf="a", expected=named)
        error = caught.value
        assert (error.session_id, error.expected, error.actual) == (session.id, named, leaf)

    async def test_an_entry_expected_where_there_is_none_is_a_conflict(self, backend: Backend) -> None:
        session = await new_session(backend)
        async with refused(backend, LeafConflict) as caught:
            await backend.append(session.id, [user()], expected=UNKNOWN)
        assert (caught.value.expected, caught.value.actual) == (UNKNOWN, None)

    async def test_operations_on_the_stored_leaf_succeed(self, backend: Backend) -> None:
        session = await new_session(backend)
        first = await backend.append(session.id, talk(2), expected=None)
        second = await backend.append(session.id, talk(1), expected=first.leaf_id)
        moved = await backend.move(session.id, first.leaf_id, expected=second.leaf_id)
        undone = await backend.undo(session.id, expected=moved.to_id)
        assert undone is not None
        redone = await backend.redo(session.id, expected=undone.to_id)
        assert redone is not None
        assert redone.to_id == first.leaf_id

    # -- on_conflict="branch" -----------------------------------------------------------------------------------

    async def test_a_conflicting_append_may_land_as_a_sibling_branch_and_moves_nobodys_leaf(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend)
        first, second = await add(backend, session.id, *talk(2))
        (theirs,) = await add(backend, session.id, user("theirs"))
        landed = await backend.append(session.id, talk(2), expected=second, on_conflict="branch")
        assert (landed.on_branch, landed.leaf_id, landed.revision) == (True, theirs, 3)
        assert await path_ids(backend, session.id) == [first, second, theirs]
        assert await path_ids(backend, session.id, landed.entry_ids[-1]) == [first, second, *landed.entry_ids]
        info = await session_info(backend, session.id)
        assert (info.leaf_id, info.revision, info.entry_count, info.message_count) == (theirs, 3, 5, 5)

    async def test_a_branch_takes_each_id_once(self, open_backend: OpenBackend) -> None:
        backend = await open_backend(repeating_sources(["one", "two", "three", "four"]))
        session = await new_session(backend, *talk(1))
        landed = await backend.append(session.id, talk(2), expected=None, on_conflict="branch")
        assert landed.entry_ids == ("two", "three")
        assert await add(backend, session.id, user()) == ("four",)
        assert (await backend.verify()).problems == []
        await backend.close()

    async def test_a_branch_is_told_by_the_feed_and_moves_the_leaf_nowhere(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        landed = await backend.append(session.id, talk(2), expected=None, on_conflict="branch")
        (change,) = await backend.changes(session.id, session.revision, 10)
        assert (change.revision, change.reason) == (landed.revision, "branch")
        assert (change.from_id, change.to_id) == (session.leaf_id, session.leaf_id)
        assert [entry.id for entry in change.entries] == list(landed.entry_ids)

    async def test_a_branch_below_none_is_another_root(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        landed = await backend.append(session.id, [user()], expected=None, on_conflict="branch")
        (root,) = await path_of(backend, session.id, landed.entry_ids[0])
        assert (root.parent_id, root.depth) == (None, 0)

    async def test_without_a_conflict_a_branch_is_a_plain_append(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        for expected in (session.leaf_id, STORED):
            before = await session_info(backend, session.id)
            choice = before.leaf_id if expected is not STORED else STORED
            landed = await backend.append(session.id, [user()], expected=choice, on_conflict="branch")
            assert (landed.on_branch, landed.leaf_id) == (False, landed.entry_ids[-1])
        assert len(await path_ids(backend, session.id)) == 4

    async def test_a_branch_below_what_the_session_does_not_see_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        foreign = await new_session(backend, *talk(1))
        fork = await backend.fork(session.id, STORED, NewSession())
        (forked,) = await add(backend, fork.id, user())
        refusals = Refusals(backend)
        for below in (UNKNOWN, foreign.leaf_id, forked):
            async with refusals.refused(EntryNotFound):
                await backend.append(session.id, [user()], expected=below, on_conflict="branch")

    async def test_branches_are_part_of_what_the_session_sees(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        (branch,) = (await backend.append(session.id, [user()], expected=None, on_conflict="branch")).entry_ids
        assert (await tree_ids(backend, session.id))[-1] == branch
        moved = await backend.move(session.id, branch)
        assert moved.to_id == branch
        (below,) = await add(backend, session.id, user())
        assert await path_ids(backend, session.id) == [branch, below]

    # -- several at once ----------------------------------------------------------------------------------------

    async def test_of_several_appends_to_one_leaf_at_once_exactly_one_wins(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        writers = [backend.append(session.id, talk(2), expected=session.leaf_id) for _ in range(8)]
        results = await outcomes(*writers)
        won = [result for result in results if not isinstance(result, BaseException)]
        lost = [result for result in results if isinstance(result, LeafConflict)]
        assert (len(won), len(lost)) == (1, 7)
        assert await path_ids(backend, session.id) == [session.leaf_id, *won[0].entry_ids]
        assert (await session_info(backend, session.id)).entry_count == 3

    async def test_of_several_appends_that_may_branch_all_land_and_one_is_on_the_path(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        landed = await together(
            *(backend.append(session.id, talk(2), expected=session.leaf_id, on_conflict="branch") for _ in range(8))
        )
        (winner,) = [result for result in landed if not result.on_branch]
        assert await path_ids(backend, session.id) == [session.leaf_id, *winner.entry_ids]
        assert len({entry_id for result in landed for entry_id in result.entry_ids}) == 16
        assert sorted(result.revision for result in landed) == list(range(2, 10))
        for result in landed:
            assert await path_ids(backend, session.id, result.entry_ids[-1]) == [session.leaf_id, *result.entry_ids]

    async def test_batches_appended_at_once_never_interleave(self, backend: Backend) -> None:
        session = await new_session(backend)
        landed = await together(*(backend.append(session.id, talk(3)) for _ in range(8)))
        in_order = sorted(landed, key=lambda result: result.revision)
        assert await path_ids(backend, session.id) == [one for result in in_order for one in result.entry_ids]
        assert [result.revision for result in in_order] == list(range(1, 9))

    async def test_sessions_written_at_once_do_not_disturb_each_other(self, backend: Backend) -> None:
        sessions = [await new_session(backend) for _ in range(6)]
        for _ in range(4):
            await together(*(backend.append(session.id, talk(2)) for session in sessions))
        for session in sessions:
            path = await path_of(backend, session.id)
            assert [entry.depth for entry in path] == list(range(8))
            assert {entry.session_id for entry in path} == {session.id}

    async def test_a_refused_operation_does_not_fail_those_beside_it(self, backend: Backend) -> None:
        sessions = [await new_session(backend, user()) for _ in range(6)]
        writers = [
            backend.append(session.id, talk(2), expected=session.leaf_id if number % 2 else UNKNOWN)
            for number, session in enumerate(sessions)
        ]
        results = await outcomes(*writers)
        assert [isinstance(result, LeafConflict) for result in results] == [True, False] * 3
        assert [len(await path_ids(backend, session.id)) for session in sessions] == [1, 3] * 3

    async def test_of_several_sessions_created_with_one_key_at_once_exactly_one_is(self, backend: Backend) -> None:
        results = await outcomes(*(backend.create_session(NewSession(key="one")) for _ in range(6)))
        assert sum(isinstance(result, SessionExists) for result in results) == 5
        assert (await backend.info()).sessions == 1
