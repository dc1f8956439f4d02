"""The contract: pins and exclusions, in every way to read a context, and undone."""

from __future__ import annotations

import json

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.sessions import STORED, LeafChoice, Mark, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, InvalidArgument, SessionNotFound
from tests.checks import Refusals, unchanged
from tests.samples import UNKNOWN, add, call, compaction, context_of, new_session, path_ids, placed, result, talk, user


async def context_ids(backend: Backend, session_id: str, leaf: LeafChoice = STORED) -> list[str]:
    """Return the ids of the context."""
    return [entry_id for entry_id, _ in await context_of(backend, session_id, leaf)]


async def pinned_by(backend: Backend, session_id: str, entry_id: str) -> JsonValue:
    """Return what a compaction says to have pinned."""
    entry = await backend.get_entry(session_id, entry_id)
    assert entry is not None
    return entry.fields.get("pinnedEntryIds")


class MarkContract:
    """Pins and exclusions."""

    async def test_a_compaction_keeps_what_is_pinned_and_later_ones_do_too(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second, third, fourth = await add(backend, session.id, *talk(4))
        assert await backend.set_pin(session.id, second, True) == (second,)
        assert await backend.set_pin(session.id, fourth, True) == (fourth,)
        before = await context_of(backend, session.id)
        assert [entry_id for entry_id, _ in before] == [first, second, third, fourth]
        (one,) = await add(backend, session.id, compaction(third))
        assert await pinned_by(backend, session.id, one) == [second]
        assert await context_of(backend, session.id) == [(await context_of(backend, session.id))[0], *before[1:]]
        (fifth,) = await add(backend, session.id, user())
        (two,) = await add(backend, session.id, compaction(fifth))
        assert await pinned_by(backend, session.id, two) == [second, fourth]
        assert await context_ids(backend, session.id) == [two, second, fourth, fifth]
        assert await context_ids(backend, session.id, one) == [one, second, third, fourth]
        await backend.undo(session.id)
        assert await context_ids(backend, session.id) == [one, second, third, fourth, fifth]

    async def test_a_group_is_pinned_as_one_over_lanes(self, backend: Backend) -> None:
        session = await new_session(backend)
        _, called = await add(backend, session.id, user(), call("a", "b"))
        fork = await backend.fork(session.id, called, NewSession())
        notes = [NewEntry.custom("note", number) for number in range(40)]
        *_, one, two, end = await add(backend, fork.id, *notes, result("b"), result("a"), *talk(1, 1))
        await add(backend, session.id, result("a"), *talk(1, 1))
        assert await backend.set_pin(fork.id, two, True) == (called, one, two)
        (summary,) = await add(backend, fork.id, compaction(end))
        assert await context_ids(backend, fork.id) == [summary, called, one, two, end]
        assert await backend.set_pin(fork.id, called, False) == (called, one, two)
        (later,) = await add(backend, fork.id, user())
        assert await context_ids(backend, fork.id) == [summary, called, one, two, end, later]
        (summary,) = await add(backend, fork.id, compaction(later))
        assert await context_ids(backend, fork.id) == [summary, later]
        assert await backend.read_marks(session.id) == []

    async def test_a_first_kept_entry_off_the_path_keeps_the_pins_all_the_same(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
        await backend.set_pin(session.id, first, True)
        await backend.move(session.id, second)
        (summary,) = await add(backend, session.id, compaction(third))
        assert await context_ids(backend, session.id) == [summary, first]

    async def test_pins_that_were_brought_along_hold_and_what_is_not_on_the_path_does_not(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
        fields: JsonObject = {
            "summary": "s",
            "firstKeptEntryId": third,
            "pinnedEntryIds": [third, "x", 7, first, first],
        }
        brought = NewEntry("compaction", json.dumps(fields), id="c", parent_id=third)
        await backend.import_entries(session.id, [brought], leaf="c")
        assert await context_ids(backend, session.id) == ["c", first, third]
        fork = await backend.fork(session.id, STORED, NewSession())
        (last,) = await add(backend, fork.id, user())
        (summary,) = await add(backend, fork.id, compaction(last))
        assert await pinned_by(backend, fork.id, summary) == [first, third]
        assert second not in await context_ids(backend, fork.id)

    async def test_pins_outlive_the_deletion_of_the_session_they_came_from(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, _, third = await add(backend, session.id, *talk(3))
        await backend.set_pin(session.id, first, True)
        (summary,) = await add(backend, session.id, compaction(third))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, NewEntry.exclusion(third))
        await backend.delete_tree(session.id)
        assert await context_ids(backend, fork.id) == [summary, first]
        await backend.undo(fork.id)
        assert await context_ids(backend, fork.id) == [summary, first, third]

    async def test_pins_are_marks_of_their_session_and_no_operation(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first, second = await path_ids(backend, session.id)
        await backend.set_pin(session.id, first, True)
        async with unchanged(backend):
            await backend.set_pin(session.id, first, True)
            await backend.set_pin(session.id, second, False)
        assert await backend.read_marks(session.id) == [Mark(first, "pin", "on")]
        undone = await backend.undo(session.id)
        assert undone is not None
        assert undone.to_id is None
        await backend.set_pin(session.id, first, False)
        assert await backend.read_marks(session.id) == [Mark(first, "pin", "off")]

    async def test_a_pin_on_what_the_session_does_not_see_or_no_context_has_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        other = await new_session(backend, user())
        (setting,) = await add(backend, session.id, NewEntry.custom("model_change", {}))
        refusals = Refusals(backend)
        for pinned in (True, False):
            for entry_id in (UNKNOWN, other.leaf_id or "", "a\0", "\ud800"):
                async with refusals.refused(EntryNotFound):
                    await backend.set_pin(session.id, entry_id, pinned)
            async with refusals.refused(InvalidArgument):
                await backend.set_pin(session.id, setting, pinned)
            async with refusals.refused(SessionNotFound):
                await backend.set_pin(UNKNOWN, setting, pinned)

    async def test_an_exclusion_leaves_out_an_entry_or_a_part_and_is_taken_back(self, backend: Backend) -> None:
        session = await new_session(backend)
        parts: list[JsonValue] = [
            {"type": "text", "text": "a"},
            {"type": "image", "id": "i", "data": "x", "mimeType": "m"},
        ]
        first, second, third = await add(
            backend, session.id, user("a"), NewEntry.message({"role": "user", "content": parts}), user("c")
        )
        await add(backend, session.id, NewEntry.exclusion(first), NewEntry.exclusion(second, "i"))
        (left, right) = await context_of(backend, session.id)
        assert [left[0], right[0]] == [second, third]
        assert left[1]["content"] == parts[:1]
        await add(backend, session.id, NewEntry.exclusion(second, 0))
        assert await context_ids(backend, session.id) == [third]
        await add(
            backend,
            session.id,
            NewEntry.exclusion(second, "i", excluded=False),
            NewEntry.exclusion(first, excluded=False),
        )
        (_, (_, message), _) = await context_of(backend, session.id)
        assert message["content"] == parts[1:]
        for expected in ([third], [second, third], [first, second, third]):
            await backend.undo(session.id)
            assert await context_ids(backend, session.id) == expected
        await backend.redo(session.id)
        assert await context_ids(backend, session.id) == [second, third]

    async def test_a_fork_can_unpin_what_the_compaction_on_its_path_has_pinned(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        ids = await path_ids(backend, session.id)
        await backend.set_pin(session.id, ids[0], True)
        await add(backend, session.id, compaction(ids[2]))
        fork = await backend.fork(session.id, STORED, NewSession())
        assert await backend.set_pin(fork.id, ids[0], False) == (ids[0],)
        assert await backend.read_marks(fork.id) == [Mark(ids[0], "pin", "off")]
        for kept, session_id in ((True, session.id), (False, fork.id)):
            await add(backend, session_id, compaction(ids[3]))
            assert (ids[0] in await context_ids(backend, session_id)) is kept

    async def test_exclusions_hold_through_compactions_and_act_in_the_fork_that_made_them(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
        await backend.set_pin(session.id, first, True)
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, NewEntry.exclusion(third), NewEntry.exclusion(first))
        assert await context_ids(backend, fork.id) == [second]
        assert await context_ids(backend, session.id) == [first, second, third]
        await backend.set_pin(fork.id, first, True)
        (summary,) = await add(backend, fork.id, compaction(second))
        assert await context_ids(backend, fork.id) == [summary, second]
        (later,) = await add(backend, fork.id, user())
        (again,) = await add(backend, fork.id, compaction(later))
        assert await context_ids(backend, fork.id) == [again, later]
        await add(backend, fork.id, NewEntry.exclusion(first, excluded=False))
        assert await context_ids(backend, fork.id) == [again, first, later]
        assert await context_ids(backend, fork.id, summary) == [summary, second]

    async def test_an_exclusion_says_nothing_of_what_follows_it_and_of_what_is_elsewhere(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend)
        rows = [
            placed(user(), "a"),
            placed(NewEntry("exclusion", '{"entryId":"c"}'), "x", "a"),
            placed(NewEntry("exclusion", '{"entryId":"gone"}'), "y", "x"),
            placed(NewEntry("exclusion", "[1]"), "z", "y"),
            placed(NewEntry("exclusion", '{"entryId":"b","part":true}'), "b", "z"),
            placed(user(), "c", "b"),
            placed(compaction("c"), "d", "c"),
        ]
        await backend.import_entries(session.id, rows, leaf="d")
        assert await context_ids(backend, session.id) == ["d", "c"]
        assert await context_ids(backend, session.id, "c") == ["a", "c"]

    async def test_undo_walks_back_over_compactions_batches_imports_and_exclusions(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        ids = await path_ids(backend, session.id)
        await backend.set_pin(session.id, ids[0], True)
        contexts = [await context_of(backend, session.id)]
        for step in (
            [compaction(ids[1])],
            [NewEntry.exclusion(ids[1]), NewEntry.exclusion(ids[2])],
            talk(3, 4),
            [NewEntry.exclusion(ids[0])],
        ):
            await add(backend, session.id, *step)
            contexts.append(await context_of(backend, session.id))
        leaf = (await path_ids(backend, session.id))[-1]
        brought = [placed(NewEntry.exclusion(leaf), "x", leaf)]
        await backend.import_entries(session.id, brought, leaf="x")
        contexts.append(await context_of(backend, session.id))
        assert len({repr(context) for context in contexts}) == len(contexts) - 1
        fork = await backend.fork(session.id, STORED, NewSession())
        for expected in contexts[-2::-1]:
            await backend.undo(session.id)
            assert await context_of(backend, session.id) == expected
        for expected in contexts[1:]:
            await backend.redo(session.id)
            assert await context_of(backend, session.id) == expected
        await backend.delete_tree(session.id)
        assert await context_of(backend, fork.id) == contexts[-1]
