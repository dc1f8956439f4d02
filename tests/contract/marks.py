"""The contract: labels, pins and forks."""

from __future__ import annotations

import json

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.sessions import STORED, LeafChoice, Mark, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, InvalidArgument, SessionExists, SessionNotFound
from tests.checks import Refusals, raises, unchanged
from tests.samples import (
    UNKNOWN,
    add,
    call,
    compaction,
    context_of,
    new_session,
    path_ids,
    path_of,
    placed,
    result,
    session_info,
    snapshot,
    talk,
    talked,
    tree_ids,
    user,
)
from tests.values import existing


async def context_ids(backend: Backend, session_id: str, leaf: LeafChoice = STORED) -> list[str]:
    """Return the ids of the context."""
    return [entry_id for entry_id, _ in await context_of(backend, session_id, leaf)]


async def pinned_by(backend: Backend, session_id: str, entry_id: str) -> JsonValue:
    """Return what a compaction says to have pinned."""
    entry = existing(await backend.get_entry(session_id, entry_id))
    return entry.fields.get("pinnedEntryIds")


async def labels(backend: Backend, session_id: str) -> dict[str, str | None]:
    """Return the labels that a session sees, by entry."""
    return {mark.entry_id: mark.value for mark in await backend.read_marks(session_id) if mark.kind == "label"}


class MarkContract:
    """Pins and exclusions, in every way to read a context, and undone."""

    async def test_a_compaction_keeps_what_is_pinned_and_later_ones_do_too(self, backend: Backend) -> None:
        session, (first, second, third, fourth) = await talked(backend, 4)
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
        session, (first, second, third) = await talked(backend, 3)
        await backend.set_pin(session.id, first, True)
        await backend.move(session.id, second)
        (summary,) = await add(backend, session.id, compaction(third))
        assert await context_ids(backend, session.id) == [summary, first]

    async def test_pins_that_were_brought_along_hold_and_what_is_not_on_the_path_does_not(
        self, backend: Backend
    ) -> None:
        session, (first, second, third) = await talked(backend, 3)
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
        session, (first, _, third) = await talked(backend, 3)
        await backend.set_pin(session.id, first, True)
        (summary,) = await add(backend, session.id, compaction(third))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, NewEntry.exclusion(third))
        await backend.delete_tree(session.id)
        assert await context_ids(backend, fork.id) == [summary, first]
        await backend.undo(fork.id)
        assert await context_ids(backend, fork.id) == [summary, first, third]

    async def test_pins_are_marks_of_their_session_and_no_operation(self, backend: Backend) -> None:
        session, (first, second) = await talked(backend, 2)
        await backend.set_pin(session.id, first, True)
        async with unchanged(backend):
            await backend.set_pin(session.id, first, True)
            await backend.set_pin(session.id, second, False)
        assert await backend.read_marks(session.id) == [Mark(first, "pin", "on")]
        assert existing(await backend.undo(session.id)).to_id is None
        await backend.set_pin(session.id, first, False)
        assert await backend.read_marks(session.id) == [Mark(first, "pin", "off")]

    async def test_a_pin_on_what_the_session_does_not_see_or_no_context_has_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        other = await new_session(backend, user())
        (setting,) = await add(backend, session.id, NewEntry.custom("model_change", {}))
        refusals = Refusals(backend)
        for pinned in (True, False):
            for entry_id in (UNKNOWN, other.leaf_id or "", "a\0", "\ud800"):
                await refusals.of(EntryNotFound, backend.set_pin(session.id, entry_id, pinned))
            await refusals.of(InvalidArgument, backend.set_pin(session.id, setting, pinned))
            await refusals.of(SessionNotFound, backend.set_pin(UNKNOWN, setting, pinned))

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
        session, ids = await talked(backend, 4)
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
        session, (first, second, third) = await talked(backend, 3)
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
        session, ids = await talked(backend, 3)
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


class ForkContract:
    """Forks, which copy nothing and share what lies before them."""

    async def test_a_fork_ends_where_it_was_made_and_starts_at_revision_zero(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4), key="k", scope="user-7")
        path = await path_ids(backend, session.id)
        new = NewSession(key="forked", title="another try", metadata_text='{"a":1}', cwd="/x", scope="ignored")
        for at in (path[1], session.leaf_id, path[0]):
            fork = await backend.fork(session.id, at, NewSession())
            assert (fork.kind, fork.leaf_id, fork.revision, fork.scope) == ("fork", at, 0, "user-7")
            assert (fork.forked_from_session, fork.forked_from_entry) == (session.id, at)
            assert (fork.key, fork.title, fork.metadata_text) == (None, None, "{}")
            assert (fork.entry_count, fork.message_count, fork.spent_tokens) == (0, 0, 0)
            assert await backend.changes(fork.id, 0, 10) == []
        named = await backend.fork(session.id, STORED, new)
        assert (named.key, named.title, named.metadata_text, named.cwd) == ("forked", "another try", '{"a":1}', "/x")
        assert named == await backend.get_session_by_key("forked", "user-7")

    async def test_a_fork_shows_the_same_entries_and_the_same_context(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        second = (await path_ids(backend, session.id))[1]
        await add(backend, session.id, compaction(second), *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        assert await path_of(backend, fork.id) == await path_of(backend, session.id)
        assert await context_of(backend, fork.id) == await context_of(backend, session.id)
        assert await backend.read_tree(fork.id) == await path_of(backend, session.id)

    async def test_a_fork_at_the_stored_leaf_is_the_default_and_none_is_an_empty_one(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        stored = await backend.fork(session.id, STORED, NewSession())
        empty = await backend.fork(session.id, None, NewSession())
        assert stored.leaf_id == session.leaf_id
        assert (empty.leaf_id, empty.forked_from_entry) == (None, None)
        assert await tree_ids(backend, empty.id) == []
        (root,) = await add(backend, empty.id, user())
        assert await path_ids(backend, empty.id) == [root]
        assert root not in await tree_ids(backend, session.id)

    async def test_a_fork_of_an_empty_session_is_empty(self, backend: Backend) -> None:
        session = await new_session(backend)
        fork = await backend.fork(session.id, STORED, NewSession())
        assert (fork.kind, fork.leaf_id, fork.forked_from_session) == ("fork", None, session.id)

    async def test_a_fork_changes_nothing_about_its_source(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        before = await snapshot(backend, session.id)
        fork = await backend.fork(session.id, session.leaf_id, NewSession())
        await add(backend, fork.id, *talk(3))
        await backend.move(fork.id, None)
        await backend.set_label(fork.id, (await path_ids(backend, session.id))[0], "x")
        assert await snapshot(backend, session.id) == before

    async def test_neither_sees_what_the_other_adds_later(self, backend: Backend) -> None:
        session, shared = await talked(backend, 2)
        fork = await backend.fork(session.id, STORED, NewSession())
        mine = await add(backend, session.id, *talk(2))
        theirs = await add(backend, fork.id, *talk(2))
        assert await tree_ids(backend, session.id) == [*shared, *mine]
        assert await tree_ids(backend, fork.id) == [*shared, *theirs]
        assert await backend.get_entry(fork.id, mine[0]) is None
        assert await backend.get_entry(session.id, theirs[0]) is None
        for session_id, foreign in ((fork.id, mine[0]), (session.id, theirs[0])):
            await raises(EntryNotFound, backend.read_path(session_id, leaf=foreign))

    async def test_a_fork_sees_its_line_and_no_siblings_of_it(self, backend: Backend) -> None:
        session, (first, second, third) = await talked(backend, 3)
        await backend.move(session.id, first)
        (sibling,) = await add(backend, session.id, user())
        fork = await backend.fork(session.id, second, NewSession())
        assert await tree_ids(backend, fork.id) == [first, second]
        for unseen in (third, sibling):
            assert await backend.get_entry(fork.id, unseen) is None
        aside = await backend.fork(session.id, third, NewSession())
        assert await path_ids(backend, aside.id) == [first, second, third]

    async def test_forks_of_forks_share_all_that_lies_before_them(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        expected = await path_ids(backend, session.id)
        current = session.id
        for number in range(12):
            fork = await backend.fork(current, STORED, NewSession())
            expected += await add(backend, fork.id, *talk(1 + number % 3))
            current = fork.id
        assert await path_ids(backend, current) == expected
        assert await tree_ids(backend, current) == expected
        assert [entry.depth for entry in await path_of(backend, current)] == list(range(len(expected)))
        middle = await backend.fork(current, expected[len(expected) // 2], NewSession())
        assert await path_ids(backend, middle.id) == expected[: len(expected) // 2 + 1]

    async def test_a_fork_at_what_the_session_does_not_see_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        (forked,) = await add(backend, fork.id, user())
        other = await new_session(backend, user())
        refusals = Refusals(backend)
        for at in (UNKNOWN, forked, other.leaf_id):
            await refusals.of(EntryNotFound, backend.fork(session.id, at, NewSession()))

    async def test_a_fork_with_a_taken_key_or_id_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2), key="k", scope="a")
        refusals = Refusals(backend)
        for new in (NewSession(key="k"), NewSession(id=session.id)):
            await refusals.of(SessionExists, backend.fork(session.id, STORED, new))
        await backend.create_session(NewSession(key="elsewhere", scope="b"))
        assert (await backend.fork(session.id, STORED, NewSession(key="elsewhere"))).scope == "a"

    async def test_a_fork_of_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        refusals = Refusals(backend)
        for at in (STORED, None, UNKNOWN):
            await refusals.of(SessionNotFound, backend.fork(UNKNOWN, at, NewSession()))

    async def test_a_fork_below_a_branch_summary_lists_what_it_inherited_root_first(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        root = (await path_ids(backend, session.id))[0]
        await backend.move(session.id, root)
        (summary,) = await add(backend, session.id, NewEntry.branch_summary("tried", from_id=session.leaf_id))
        fork = await backend.fork(session.id, summary, NewSession())
        own = await add(backend, fork.id, *talk(1))
        await backend.move(fork.id, root)
        aside = await add(backend, fork.id, *talk(1))
        assert await tree_ids(backend, fork.id) == [root, summary, *own, *aside]

    async def test_a_task_sessions_history_can_be_forked(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        task = await backend.create_task(session.id, "t", NewSession())
        ids = await add(backend, task.id, *talk(3))
        fork = await backend.fork(task.id, ids[1], NewSession())
        assert fork.kind == "fork"
        assert await path_ids(backend, fork.id) == list(ids[:2])
        assert (await session_info(backend, task.id)).kind == "task"


class ForkMarkContract:
    """Labels and pins that a fork sees of its source, and what stays of them."""

    async def test_a_fork_sees_the_labels_of_the_path_it_shares_and_no_others(self, backend: Backend) -> None:
        session, ids = await talked(backend, 4)
        for entry_id, label in zip(ids, "abcd", strict=True):
            await backend.set_label(session.id, entry_id, label)
        fork = await backend.fork(session.id, ids[1], NewSession())
        assert await labels(backend, fork.id) == {ids[0]: "a", ids[1]: "b"}
        await backend.set_label(session.id, ids[0], "later")
        await backend.set_label(session.id, ids[1], None)
        assert await labels(backend, fork.id) == {ids[0]: "later"}
        assert (await session_info(backend, fork.id)).revision == 0
        empty = await backend.fork(session.id, None, NewSession())
        assert await labels(backend, empty.id) == {}

    async def test_what_a_fork_labels_itself_wins_and_leaves_its_source_alone(self, backend: Backend) -> None:
        session, ids = await talked(backend, 3)
        await backend.set_label(session.id, ids[0], "mine")
        await backend.set_label(session.id, ids[1], "ours")
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.set_label(fork.id, ids[0], "theirs")
        await backend.set_label(fork.id, ids[1], None)
        assert await labels(backend, fork.id) == {ids[0]: "theirs"}
        assert await labels(backend, session.id) == {ids[0]: "mine", ids[1]: "ours"}
        await backend.set_label(session.id, ids[1], "again")
        assert await labels(backend, fork.id) == {ids[0]: "theirs"}
        revision = (await session_info(backend, fork.id)).revision
        await backend.set_label(fork.id, ids[1], None)
        assert (await session_info(backend, fork.id)).revision == revision
        await backend.go_back(fork.id, 2, before=True)
        assert await labels(backend, fork.id) == {ids[0]: "theirs", ids[1]: "ours"}

    async def test_a_fork_of_a_fork_sees_through_both(self, backend: Backend) -> None:
        session, ids = await talked(backend, 3)
        first = await backend.fork(session.id, ids[2], NewSession())
        (own,) = await add(backend, first.id, user())
        second = await backend.fork(first.id, own, NewSession())
        higher = await backend.fork(first.id, ids[0], NewSession())
        for entry_id in ids:
            await backend.set_label(session.id, entry_id, "root")
        await backend.set_label(first.id, own, "first")
        await backend.set_label(first.id, ids[1], None)
        assert await labels(backend, second.id) == {ids[0]: "root", ids[2]: "root", own: "first"}
        assert await labels(backend, higher.id) == {ids[0]: "root"}

    async def test_a_fork_on_another_branch_of_a_fork_sees_what_all_three_share(self, backend: Backend) -> None:
        session, ids = await talked(backend, 3)
        first = await backend.fork(session.id, ids[2], NewSession())
        await backend.move(first.id, ids[0])
        (beside,) = await add(backend, first.id, user())
        second = await backend.fork(first.id, beside, NewSession())
        await backend.move(first.id, None)
        (root,) = await add(backend, first.id, user())
        third = await backend.fork(first.id, root, NewSession())
        for entry_id in ids:
            await backend.set_label(session.id, entry_id, "root")
        assert await labels(backend, second.id) == {ids[0]: "root"}
        assert await labels(backend, third.id) == {}

    async def test_what_a_fork_sees_stays_when_its_source_is_deleted(self, backend: Backend) -> None:
        session, ids = await talked(backend, 4)
        first = await backend.fork(session.id, ids[2], NewSession())
        second = await backend.fork(first.id, ids[1], NewSession())
        for entry_id, label in zip(ids, "abcd", strict=True):
            await backend.set_label(session.id, entry_id, label)
        await backend.set_pin(session.id, ids[1], True)
        await backend.set_label(first.id, ids[1], "mine")
        await backend.set_label(second.id, ids[0], None)
        seen = [await backend.read_marks(fork.id) for fork in (first, second)]
        assert Mark(ids[1], "pin", "on") in seen[1]
        await backend.delete_tree(session.id)
        assert [await backend.read_marks(fork.id) for fork in (first, second)] == seen
        await backend.delete_tree(first.id)
        assert await backend.read_marks(second.id) == seen[1]
        assert await labels(backend, second.id) == {ids[1]: "mine"}

    async def test_a_dry_run_of_a_deletion_leaves_nothing(self, backend: Backend) -> None:
        session, ids = await talked(backend, 2)
        await backend.set_label(session.id, ids[0], "a")
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.plan_deletion([session.id], None)
        await backend.set_label(session.id, ids[0], "b")
        assert await labels(backend, fork.id) == {ids[0]: "b"}

    async def test_a_pin_of_the_source_keeps_in_the_fork_and_can_be_let_go_of_there(self, backend: Backend) -> None:
        session, ids = await talked(backend, 4)
        await backend.set_pin(session.id, ids[0], True)
        forks = [await backend.fork(session.id, STORED, NewSession()) for _ in range(2)]
        assert await backend.set_pin(forks[1].id, ids[0], False) == (ids[0],)
        for fork, kept in zip(forks, ([ids[0]], None), strict=True):
            (cut,) = await add(backend, fork.id, compaction(ids[3]))
            assert existing(await backend.get_entry(fork.id, cut)).fields.get("pinnedEntryIds") == kept
        assert Mark(ids[0], "pin", "on") in await backend.read_marks(session.id)

    async def test_what_a_source_retracts_is_still_labelled_in_its_fork(self, backend: Backend) -> None:
        session, ids = await talked(backend, 2)
        await backend.set_label(session.id, ids[1], "b")
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.retract(session.id, ids[1])
        assert await backend.read_marks(fork.id) == [Mark(ids[1], "label", "b")]

    async def test_a_session_with_the_id_of_a_deleted_source_is_not_the_source(self, backend: Backend) -> None:
        session, ids = await talked(backend, 2)
        await backend.set_label(session.id, ids[0], "old")
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.delete_tree(session.id)
        again = await backend.fork(fork.id, STORED, NewSession(id=session.id))
        assert (await session_info(backend, fork.id)).forked_from_session is None
        for entry_id in ids:
            await backend.set_label(again.id, entry_id, "new")
        assert await labels(backend, fork.id) == {ids[0]: "old"}

    async def test_a_fork_takes_an_id_and_a_scope_of_its_own(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2), scope="a")
        new = NewSession(key="k", id="mine", cwd="/work")
        fork = await backend.fork(session.id, STORED, new, scope="b", idempotency_key="once")
        assert (fork.id, fork.scope, fork.cwd, fork.leaf_id) == ("mine", "b", "/work", session.leaf_id)
        assert await backend.get_session_by_key("k", "b") == fork
        assert await backend.get_session_by_key("k", "a") is None
        assert await backend.fork(session.id, STORED, new, scope="b", idempotency_key="once") == fork
        await raises(SessionExists, backend.fork(session.id, STORED, NewSession(id="mine")))
