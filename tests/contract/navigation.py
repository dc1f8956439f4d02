"""The contract: going elsewhere with a summary of what is left, in one transaction."""

from __future__ import annotations

import pytest

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import Mark, Navigated, Note
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, LeafConflict
from tests.checks import unchanged
from tests.samples import UNKNOWN, add, new_session, path_ids, session_info, talk, user


class NavigationContract:
    """Navigation."""

    async def test_the_leaf_goes_elsewhere_with_a_summary_as_one_step_of_undo(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        ids = await path_ids(backend, session.id)
        summary = NewEntry.branch_summary("left", from_id=ids[1], abandoned_leaf_id=ids[3], usage={"output": 3})
        went = await backend.navigate(
            session.id, ids[1], summary=summary, label="fork in the road", expected=ids[3], note=Note("me", "because")
        )
        assert went == Navigated(ids[3], went.summary_id, 3, went.summary_id)
        assert went.summary_id is not None
        assert await path_ids(backend, session.id) == [*ids[:2], went.summary_id]
        entry = await backend.get_entry(session.id, went.summary_id)
        assert entry is not None
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
        session = await new_session(backend, *talk(3))
        ids = await path_ids(backend, session.id)
        went = await backend.navigate(session.id, ids[0], label="here", labelled=ids[1])
        assert went == Navigated(ids[2], ids[0], 3)
        assert await backend.read_marks(session.id) == [Mark(ids[1], "label", "here")]
        assert await backend.navigate(session.id, ids[0]) == Navigated(ids[0], ids[0], 3)
        assert await backend.navigate(session.id, None) == Navigated(ids[0], None, 4)

    async def test_a_summary_can_stand_at_the_root_and_in_a_fork(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        ids = await path_ids(backend, session.id)
        summary = NewEntry.branch_summary("all of it", from_id="root", abandoned_leaf_id=ids[1])
        went = await backend.navigate(session.id, None, summary=summary)
        assert await path_ids(backend, session.id) == [went.summary_id]
        (below,) = await add(backend, session.id, user())
        assert await path_ids(backend, session.id) == [went.summary_id, below]

    async def test_a_navigation_that_cannot_be_changes_nothing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        ids = await path_ids(backend, session.id)
        summary = NewEntry.branch_summary("left", from_id=None)
        async with unchanged(backend):
            with pytest.raises(LeafConflict):
                await backend.navigate(session.id, ids[0], summary=summary, expected=ids[0])
            with pytest.raises(EntryNotFound):
                await backend.navigate(session.id, UNKNOWN, summary=summary)
            with pytest.raises(EntryNotFound):
                await backend.navigate(session.id, ids[0], label="x", labelled=UNKNOWN)
