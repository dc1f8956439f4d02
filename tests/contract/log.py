"""The contract: the log of a session, and going back to any line of it."""

from __future__ import annotations

import pytest

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import STORED, Edit, LogLine, Mark, NewSession, Note
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, InvalidArgument, LeafConflict, SessionNotFound
from tests.checks import Refusals, refused, unchanged
from tests.samples import (
    UNKNOWN,
    add,
    compaction,
    context_of,
    new_session,
    path_ids,
    placed,
    session_info,
    talk,
    tree_ids,
    user,
)

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
    line = await backend.go_back(session_id, revision, before=before)
    assert line is not None
    assert (await backend.read_log(session_id, before=None, limit=1)) == [line]
    return line


class LogContract:
    """The log, and going back."""

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
        session = await new_session(backend, *talk(50))
        ids = await path_ids(backend, session.id)
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
            undone = await backend.undo(session.id)
            assert undone is not None
            assert undone.to_id == leaves[revision]
        line = await gone_back(backend, session.id, 2, before=True)
        assert line.to_id == leaves[1]

    async def test_what_was_retracted_since_comes_back_and_undo_retracts_it_again(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
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
        session = await new_session(backend)
        first, failed = await add(backend, session.id, *talk(2))
        await backend.retract(session.id, failed)
        await gone_back(backend, session.id, 1)
        landed = await backend.append(session.id, [user()], expected=failed)
        await backend.undo(session.id)
        await backend.undo(session.id)
        assert await tree_ids(backend, session.id) == [first, failed, *landed.entry_ids]
        assert (await session_info(backend, session.id)).message_count == 3

    async def test_an_edit_is_gone_back_to_by_its_value(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first, second = await path_ids(backend, session.id)
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
        entry = session.leaf_id
        assert entry is not None
        await backend.set_label(session.id, entry, "x")
        await backend.set_label(session.id, entry, "y")
        await backend.retract(session.id, entry)
        async with refused(backend, EntryNotFound):
            await backend.go_back(session.id, 2)

    @pytest.mark.parametrize("revision", [2, 1000, 2**62])
    async def test_a_revision_that_was_not_yet_is_refused(self, backend: Backend, revision: int) -> None:
        session = await new_session(backend, *talk(2))
        async with refused(backend, InvalidArgument):
            await backend.go_back(session.id, revision)

    async def test_going_back_builds_on_the_leaf_that_is_named(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        async with refused(backend, LeafConflict):
            await backend.go_back(session.id, 0, expected=None)
        assert await backend.go_back(session.id, 0, expected=session.leaf_id) is not None

    async def test_who_and_why_are_kept_as_given_up_to_a_length(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        entry = session.leaf_id
        assert entry is not None
        by, why = "é" * LONGEST_BY, "ß\n" * (LONGEST_WHY // 2)
        await backend.move(session.id, None, note=Note(by, why))
        assert [(line.by, line.why) for line in await log_of(backend, session.id)][1:] == [(by, why)]
        for wrong_by, wrong_why in ((by + "x", None), (None, why + "x"), ("a\0", None), (None, "\ud800")):
            with pytest.raises(InvalidArgument):
                Note(wrong_by, wrong_why)
        assert len(await log_of(backend, session.id)) == 2

    async def test_the_log_of_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        refusals = Refusals(backend)
        async with refusals.refused(SessionNotFound):
            await backend.read_log(UNKNOWN, before=None, limit=5)
        async with refusals.refused(SessionNotFound):
            await backend.go_back(UNKNOWN, 0)
