"""The contract: paths, contexts, their ends, and entries by id or page."""

from __future__ import annotations

import base64
from contextlib import aclosing

import anyio
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from flue_py.core.context import project
from flue_py.core.entries import NewEntry, Pairing, Range, laid_out, messages_of
from flue_py.core.ledger import NewBudget
from flue_py.core.sessions import STORED, LeafChoice, NewSession, Note
from flue_py.db.backend import Backend
from flue_py.errors import AmbiguousId, EntryNotFound, SessionNotFound
from tests.checks import raises
from tests.samples import (
    UNKNOWN,
    add,
    assistant,
    call,
    compaction,
    context_of,
    entries_of,
    ids_of,
    new_session,
    path_ids,
    path_of,
    placed,
    result,
    session_info,
    talk,
    talked,
    tree_ids,
    user,
)
from tests.sources import OpenBackend, counted_sources
from tests.tables import inputs
from tests.values import existing

PATIENCE_SECONDS = 30
"""How long a watcher may be left waiting: a lost notification fails its test instead of hanging it."""


async def assert_context_is_the_projection_of_the_path(backend: Backend, session_id: str) -> None:
    """Check every entry the session sees as a leaf."""
    for leaf in (STORED, None, *await tree_ids(backend, session_id)):
        expected = [(item.entry_id, item.data) for item in project(await path_of(backend, session_id, leaf))]
        assert await context_of(backend, session_id, leaf) == expected


async def end_ids(backend: Backend, session_id: str, limit: int, leaf: LeafChoice = STORED) -> list[str]:
    """Return the ids of the end of a path."""
    return ids_of(entries_of(await backend.read_path_end(session_id, limit, leaf=leaf)))


async def assert_ends_are_whole(backend: Backend, session_id: str) -> None:
    """Check the end of the path and of the context to the leaf with every limit that differs, and to every other entry
    with every fourth: which ones, differs from entry to entry.
    """
    leaves: list[LeafChoice] = [STORED, None, *await tree_ids(backend, session_id)]
    for number, leaf in enumerate(leaves):
        path = await path_of(backend, session_id, leaf)
        context = await context_of(backend, session_id, leaf)
        limits = [*range(1, max(len(path), len(context)) + 2), 10_000_000_000]
        for limit in limits[number % 4 :: 4 if number else 1]:
            end = entries_of(await backend.read_path_end(session_id, limit, leaf=leaf))
            start = len(path) - len(end)
            assert (end, start) == (path[start:], _start(Pairing(messages_of(path)), len(path), limit))
            last = (await backend.read_context_end(session_id, limit, leaf=leaf)).items
            start = len(context) - len(last)
            assert [(item.entry_id, item.data) for item in last] == context[start:]
            assert start == _start(Pairing([data for _, data in context]), len(context), limit)


def _start(pairing: Pairing, length: int, limit: int) -> int:
    """Return where an end begins: as early as the limit allows, without a result whose call is before it."""
    starts: list[int] = [*range(max(length - limit, 0), length), *range(length - limit, 0, -1)]
    for start in starts:
        if not any(found and call.at < start <= max(found) for call, found in pairing.results.items()):
            return start
    return 0


async def child_ids(backend: Backend, session_id: str, entry_id: str | None) -> list[str]:
    """Return the ids of the entries below one."""
    return ids_of(await backend.children(session_id, entry_id))


async def pages(
    backend: Backend, session_id: str, *, kind: str | None = None, newest_first: bool = False, limit: int = 3
) -> list[str]:
    """Return the ids of all entries, read page by page; no page but the last is short."""
    found: list[str] = []
    while True:
        after = found[-1] if found else None
        page = await backend.read_entries(session_id, kind=kind, after=after, newest_first=newest_first, limit=limit)
        found += ids_of(page)
        if len(page) < limit:
            return found


async def assert_pages_are_the_tree(backend: Backend, session_id: str) -> None:
    """Check the pages of every kind, either way, of several lengths."""
    tree = await backend.read_tree(session_id)
    for kind in (None, *sorted({entry.kind for entry in tree}), "none-such"):
        ids = [entry.id for entry in tree if kind in (None, entry.kind)]
        for limit in (1, 2, 3, 7, 1000):
            assert await pages(backend, session_id, kind=kind, limit=limit) == ids
            assert await pages(backend, session_id, kind=kind, limit=limit, newest_first=True) == ids[::-1]


class ReadContract:
    """Paths, contexts, look-ups and the change feed."""

    # -- paths ----------------------------------------------------------------------------------------------------

    async def test_a_path_is_read_at_the_stored_leaf_or_at_any_entry_the_session_sees(self, backend: Backend) -> None:
        session, (first, second, third) = await talked(backend, 3)
        await backend.move(session.id, first)
        (sibling,) = await add(backend, session.id, user())
        assert await path_ids(backend, session.id) == [first, sibling]
        assert await path_ids(backend, session.id, third) == [first, second, third]
        assert await path_ids(backend, session.id, first) == [first]
        assert await path_ids(backend, session.id, None) == []

    async def test_a_read_says_which_state_it_read(self, backend: Backend) -> None:
        session, (first, second) = await talked(backend, 2)
        stored = await backend.read_path(session.id)
        older = await backend.read_path(session.id, leaf=first)
        since = await backend.read_path_since(session.id, first)
        context = await backend.read_context(session.id, leaf=first)
        assert (stored.leaf_id, stored.stored_leaf_id, stored.revision) == (second, second, 1)
        assert (older.leaf_id, older.stored_leaf_id, older.revision) == (first, second, 1)
        assert (since.leaf_id, since.stored_leaf_id, since.revision) == (second, second, 1)
        assert (context.leaf_id, context.stored_leaf_id, context.revision) == (first, second, 1)

    async def test_the_path_of_an_empty_session_is_empty(self, backend: Backend) -> None:
        session = await new_session(backend)
        for read in (
            await backend.read_path(session.id),
            await backend.read_context(session.id),
            await backend.read_path_since(session.id, None),
        ):
            assert (read.leaf_id, read.stored_leaf_id, read.revision) == (None, None, 0)
            assert list(entries_of(read)) == []
            assert read.compaction is None
        assert await backend.read_tree(session.id) == []
        assert await backend.read_turns(session.id) == []

    async def test_a_read_is_spared_while_its_stamp_holds(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        older = (await path_ids(backend, session.id))[0]
        for read in (backend.read_path, backend.read_context):
            stamp = (await read(session.id)).stamp
            again = await read(session.id, unless=stamp)
            assert (again.goes_on, [*again.entries], again.leaf_id, again.stamp) == (True, [], session.leaf_id, stamp)
            assert (await read(session.id, leaf=session.leaf_id, unless=stamp)).goes_on
            assert ids_of(entries_of(await read(session.id, leaf=older, unless=stamp))) == [older]
            await backend.set_label(session.id, older, "other")
            assert (await read(session.id, unless=stamp)).stored_leaf_id == session.leaf_id
            (leaf,) = await add(backend, session.id, user())
            changed = await read(session.id, unless=stamp)
            assert ids_of(changed.entries) == [leaf]
            assert not (await read(session.id, unless=changed.stamp)).entries
            await backend.undo(session.id)
            assert (await read(session.id, unless=stamp)).goes_on

    async def test_a_longer_path_is_read_behind_the_leaf_of_its_stamp(self, backend: Backend) -> None:
        for name in ("read_path", "read_context"):
            read = getattr(backend, name)
            session, ids = await talked(backend, 4)
            stamp = (await read(session.id)).stamp
            added = await add(backend, session.id, user(), assistant("yes"))
            longer = await read(session.id, unless=stamp)
            assert (longer.goes_on, tuple(ids_of(longer.entries))) == (True, added)
            for other in (replace(stamp, leaf_id=ids[0]), replace(stamp, epoch=1), longer.stamp):
                whole = await read(session.id, unless=other, leaf=added[0])
                assert ids_of(entries_of(whole)) == [*ids, added[0]]
            await backend.move(session.id, ids[2])
            beside = await add(backend, session.id, *talk(3))
            aside = await read(session.id, unless=stamp)
            assert ids_of(entries_of(aside)) == [*ids[:3], *beside]

    async def test_a_longer_context_is_read_behind_its_leaf_while_its_compaction_counts(self, backend: Backend) -> None:
        session, ids = await talked(backend, 4)
        before = (await backend.read_context(session.id)).stamp
        await add(backend, session.id, compaction(ids[2]), user())
        compacted = await backend.read_context(session.id, unless=before)
        assert not compacted.goes_on
        added = await add(backend, session.id, assistant("no"))
        longer = await backend.read_context(session.id, unless=compacted.stamp)
        assert (longer.goes_on, tuple(ids_of(longer.entries))) == (True, added)
        await backend.redact(session.id, [ids[3]], note=Note())
        assert not (await backend.read_context(session.id, unless=compacted.stamp)).goes_on

    async def test_the_path_since_an_entry_is_what_follows_it(self, backend: Backend) -> None:
        session, (first, second, third) = await talked(backend, 3)
        await backend.move(session.id, first)
        (sibling,) = await add(backend, session.id, user())
        await backend.move(session.id, third)

        async def since(anchor: str | None, leaf: str | None = third) -> list[str]:
            return ids_of(entries_of(await backend.read_path_since(session.id, anchor, leaf=leaf)))

        assert await since(None) == [first, second, third]
        assert await since(first) == [second, third]
        assert await since(third) == []
        assert await since(sibling) == []
        assert await since(UNKNOWN) == []
        assert await since(third, second) == []
        assert await since(first, sibling) == [sibling]
        assert await since(None, None) == []
        assert await since(first, None) == []

    async def test_the_path_since_an_inherited_entry_crosses_the_fork(self, backend: Backend) -> None:
        session, (first, second, third) = await talked(backend, 3)
        fork = await backend.fork(session.id, second, NewSession())
        own = await add(backend, fork.id, *talk(2))
        assert ids_of(entries_of(await backend.read_path_since(fork.id, first))) == [second, *own]
        assert ids_of(entries_of(await backend.read_path_since(fork.id, own[0]))) == [own[1]]
        assert ids_of(entries_of(await backend.read_path_since(fork.id, third))) == []

    @inputs("leaf", ["unknown", "another tree", "the fork of it"])
    async def test_a_read_at_what_the_session_does_not_see_is_refused(self, backend: Backend, leaf: str) -> None:
        session = await new_session(backend, *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        elsewhere = {
            "unknown": UNKNOWN,
            "another tree": (await new_session(backend, user())).leaf_id,
            "the fork of it": (await add(backend, fork.id, user()))[0],
        }
        at = elsewhere[leaf]
        for read in (backend.read_path, backend.read_context, backend.read_turns):
            await raises(EntryNotFound, read(session.id, leaf=at))
        await raises(EntryNotFound, backend.read_path_since(session.id, None, leaf=at))
        await raises(EntryNotFound, backend.read_usage(session.id, None, leaf=at))

    async def test_reads_of_a_session_that_is_not_there_are_refused(self, backend: Backend) -> None:
        await new_session(backend, user())
        for read in (backend.read_path, backend.read_context, backend.read_turns, backend.read_tree):
            await raises(SessionNotFound, read(UNKNOWN))
        await raises(SessionNotFound, backend.read_path_since(UNKNOWN, None))
        await raises(SessionNotFound, backend.read_usage(UNKNOWN, None))
        await raises(SessionNotFound, backend.get_entry(UNKNOWN, UNKNOWN))
        await raises(SessionNotFound, backend.match_entry_ids(UNKNOWN, ""))
        await raises(SessionNotFound, backend.is_ancestor(UNKNOWN, UNKNOWN, UNKNOWN))
        await raises(SessionNotFound, backend.changes(UNKNOWN, 0, 10))
        await raises(SessionNotFound, backend.read_marks(UNKNOWN))

    # -- contexts -------------------------------------------------------------------------------------------------

    async def test_without_a_compaction_the_context_is_every_message_and_summary(self, backend: Backend) -> None:
        session = await new_session(
            backend,
            *talk(2),
            NewEntry.custom("model_change", {"model": "x"}),
            NewEntry.branch_summary("tried", from_id=None),
            NewEntry.custom("custom_message", {"content": "note"}),
            *talk(1),
        )
        read = await backend.read_context(session.id)
        assert read.compaction is None
        assert [item[1]["role"] for item in await context_of(backend, session.id)] == [
            "user", "assistant", "user", "user", "user",
        ]  # fmt: skip
        await assert_context_is_the_projection_of_the_path(backend, session.id)

    async def test_with_a_compaction_the_context_is_its_summary_and_what_is_kept(self, backend: Backend) -> None:
        session, ids = await talked(backend, 6)
        (cut,) = await add(backend, session.id, compaction(ids[4], "summary"))
        later = await add(backend, session.id, *talk(2))
        context = await context_of(backend, session.id)
        assert [entry_id for entry_id, _ in context] == [cut, ids[4], ids[5], *later]
        read = await backend.read_context(session.id)
        assert read.compaction is not None
        assert read.compaction.id == cut
        await assert_context_is_the_projection_of_the_path(backend, session.id)

    async def test_the_context_is_read_from_the_first_kept_entry_on(self, backend: Backend) -> None:
        session, path = await talked(backend, 6)
        (summary,) = await add(backend, session.id, compaction(path[4]))
        (last,) = await add(backend, session.id, user())
        read = await backend.read_context(session.id)
        assert ids_of(entries_of(read)) == [*path[4:], summary, last]
        assert read.compaction == entries_of(read)[2]
        assert ids_of(entries_of(await backend.read_context(session.id, leaf=path[5]))) == path

    async def test_the_latest_compaction_on_the_path_counts(self, backend: Backend) -> None:
        session, ids = await talked(backend, 4)
        (one,) = await add(backend, session.id, compaction(ids[2], "one"))
        more = await add(backend, session.id, *talk(3))
        (two,) = await add(backend, session.id, compaction(ids[3], "two"))
        await add(backend, session.id, *talk(2))
        context = [entry_id for entry_id, _ in await context_of(backend, session.id)]
        assert context[:5] == [two, ids[3], *more]
        assert one not in context
        await backend.move(session.id, more[0])
        assert [entry_id for entry_id, _ in await context_of(backend, session.id)] == [one, ids[2], ids[3], more[0]]
        await backend.move(session.id, ids[2])
        await add(backend, session.id, user())
        assert (await backend.read_context(session.id)).compaction is None
        await assert_context_is_the_projection_of_the_path(backend, session.id)

    async def test_a_compaction_that_keeps_from_off_the_path_keeps_nothing_before_it(self, backend: Backend) -> None:
        session, (first, second) = await talked(backend, 2)
        await backend.move(session.id, first)
        cut, after = await add(backend, session.id, compaction(second), user())
        assert [entry_id for entry_id, _ in await context_of(backend, session.id)] == [cut, after]
        await assert_context_is_the_projection_of_the_path(backend, session.id)

    async def test_what_lies_before_and_between_ranges_is_kept_whole(self, backend: Backend) -> None:
        session, ids = await talked(backend, 12)
        new = NewEntry.compaction("so far", first_kept_entry_id=ids[0], tokens_before=9)
        ranges = [Range(ids[3], ids[4], None), Range(ids[8], ids[9], None)]
        await backend.append(session.id, [laid_out(new, ranges)])
        kept = [entry_id for entry_id, _ in await context_of(backend, session.id)]
        assert [entry_id for entry_id in kept if entry_id in ids] == [*ids[:3], *ids[5:8], *ids[10:]]
        await assert_context_is_the_projection_of_the_path(backend, session.id)

    async def test_a_compaction_that_keeps_from_below_itself_keeps_nothing_before_it(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, cut, below = await add(
            backend, session.id, user(), placed(NewEntry.custom("note", 1), "note"), placed(user(), "below")
        )
        await backend.import_entries(
            session.id, [placed(compaction("below"), "cut", first), placed(user(), "child", "cut")], leaf="child"
        )
        assert [entry_id for entry_id, _ in await context_of(backend, session.id)] == ["cut", "child"]
        assert {cut, below} == {"note", "below"}
        await assert_context_is_the_projection_of_the_path(backend, session.id)

    async def test_a_fork_projects_across_its_fork_points(self, backend: Backend) -> None:
        session, ids = await talked(backend, 4)
        await add(backend, session.id, compaction(ids[1]), *talk(2))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, fork.id, *talk(2))
        assert (await context_of(backend, fork.id))[:4] == (await context_of(backend, session.id))[:4]
        other = await backend.fork(fork.id, STORED, NewSession())
        await add(backend, other.id, compaction(ids[3]), *talk(1))
        context = [entry_id for entry_id, _ in await context_of(backend, other.id)]
        assert context[1] == ids[3]
        for session_id in (session.id, fork.id, other.id):
            await assert_context_is_the_projection_of_the_path(backend, session_id)

    async def test_the_same_leaf_gives_the_same_bytes(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(5))
        leaf = (await add(backend, session.id, user("é\u0000🚨", zeta=1, alpha=None)))[0]
        before = [entry.payload for entry in await path_of(backend, session.id, leaf)]
        await add(backend, session.id, compaction(leaf), *talk(3))
        fork = await backend.fork(session.id, leaf, NewSession())
        assert [entry.payload for entry in await path_of(backend, session.id, leaf)] == before
        assert [entry.payload for entry in await path_of(backend, fork.id)] == before

    # -- single entries -------------------------------------------------------------------------------------------

    async def test_turns_are_the_user_messages_of_the_path(self, backend: Backend) -> None:
        session = await new_session(backend)
        one, _, _, two, cut, three = await add(
            backend,
            session.id,
            user("one"),
            assistant(),
            NewEntry.custom("custom_message", {"content": "x"}),
            user("two"),
            placed(NewEntry.branch_summary("x", from_id=None), "summary"),
            user("three"),
        )
        assert ids_of(await backend.read_turns(session.id)) == [one, two, three]
        assert ids_of(await backend.read_turns(session.id, leaf=cut)) == [one, two]
        assert await backend.read_turns(session.id, leaf=None) == []
        fork = await backend.fork(session.id, cut, NewSession())
        (four,) = await add(backend, fork.id, user("four"))
        assert ids_of(await backend.read_turns(fork.id)) == [one, two, four]

    async def test_what_a_program_wrote_for_the_user_begins_no_turn(self, backend: Backend) -> None:
        session = await new_session(backend)
        said, _ = await add(backend, session.id, user("said"), user("noted", isMeta=True))
        assert ids_of(await backend.read_turns(session.id)) == [said]

    async def test_the_tree_lists_what_it_inherited_root_first(self, backend: Backend) -> None:
        chain = [placed(user(), "c"), placed(user(), "b", "c"), placed(user(), "a", "b")]
        session = await backend.import_session(NewSession(), chain, leaf="a")
        fork = await backend.fork(session.id, STORED, NewSession())
        (own,) = await add(backend, fork.id, user())
        assert await tree_ids(backend, fork.id) == ["c", "b", "a", own]

    async def test_the_tree_lists_own_entries_as_they_were_added(self, backend: Backend) -> None:
        session, (first, second) = await talked(backend, 2)
        (branch,) = (await backend.append(session.id, [user()], expected=first, on_conflict="branch")).entry_ids
        await backend.move(session.id, None)
        (root,) = await add(backend, session.id, user())
        await backend.import_entries(session.id, [placed(user(), "z", branch), placed(user(), "a", second)], leaf="a")
        assert await tree_ids(backend, session.id) == [first, second, branch, root, "z", "a"]

    async def test_an_entry_is_found_by_id_if_the_session_sees_it(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        path = await path_of(backend, session.id)
        fork = await backend.fork(session.id, path[1].id, NewSession())
        assert [await backend.get_entry(session.id, entry.id) for entry in path] == path
        assert await backend.get_entry(fork.id, path[1].id) == path[1]
        assert await backend.get_entry(fork.id, path[2].id) is None
        assert await backend.get_entry(session.id, UNKNOWN) is None
        assert await backend.get_entry(session.id, "") is None

    async def test_entry_ids_are_matched_by_prefix_among_what_the_session_sees(self, backend: Backend) -> None:
        ids = ["ab2", "ab1", "AB3", "b", "a%c", "a_d", "aé"]
        session = await new_session(backend, *(placed(user(), entry_id) for entry_id in ids))
        await new_session(backend, placed(user(), "ab0"))
        fork = await backend.fork(session.id, "ab1", NewSession())
        await add(backend, fork.id, placed(user(), "ab9"))
        assert await backend.match_entry_ids(session.id, "ab", 9) == ["ab1", "ab2"]
        assert await backend.match_entry_ids(session.id, "a", 9) == ["a%c", "a_d", "ab1", "ab2", "aé"]
        assert await backend.match_entry_ids(session.id, "a") == ["a%c", "a_d"]
        assert await backend.match_entry_ids(session.id, "a%", 9) == ["a%c"]
        assert await backend.match_entry_ids(session.id, "a_", 9) == ["a_d"]
        assert await backend.match_entry_ids(session.id, "ab1") == ["ab1"]
        assert await backend.match_entry_ids(session.id, "ab9") == []
        assert await backend.match_entry_ids(session.id, "", 9) == sorted(ids)
        assert await backend.match_entry_ids(fork.id, "ab", 9) == ["ab1", "ab2", "ab9"]
        assert await backend.match_entry_ids(fork.id, "", 9) == ["ab1", "ab2", "ab9"]

    async def test_of_many_ids_that_begin_alike_those_the_session_sees_are_found(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user(), "a"))
        fork = await backend.fork(session.id, "a", NewSession())
        await add(backend, session.id, *(placed(user(), f"x{number:03}") for number in range(150)))
        await add(backend, fork.id, placed(user(), "x1"), placed(user(), "x2"))
        assert await backend.match_entry_ids(fork.id, "x", 9) == ["x1", "x2"]
        assert len(await backend.match_entry_ids(session.id, "x", 200)) == 150

    async def test_an_ancestor_is_an_entry_on_the_way_to_the_root_or_the_entry_itself(self, backend: Backend) -> None:
        session, (first, second, third) = await talked(backend, 3)
        await backend.move(session.id, first)
        (sibling,) = await add(backend, session.id, user())
        fork = await backend.fork(session.id, second, NewSession())
        (own,) = await add(backend, fork.id, user())
        for entry_id, of, expected in (
            (first, third, True), (second, third, True), (third, third, True), (third, first, False),
            (second, sibling, False), (sibling, third, False), (first, sibling, True),
        ):  # fmt: skip
            assert await backend.is_ancestor(session.id, entry_id, of) is expected
        assert await backend.is_ancestor(fork.id, first, own) is True
        assert await backend.is_ancestor(fork.id, own, second) is False
        for entry_id, of in ((UNKNOWN, first), (first, UNKNOWN), (own, first), (first, own)):
            await raises(EntryNotFound, backend.is_ancestor(session.id, entry_id, of))

    # -- the feed -------------------------------------------------------------------------------------------------

    async def test_the_feed_holds_every_revision_in_order(self, backend: Backend) -> None:
        session, path = await talked(backend, 2)
        await backend.update_session(session.id, title="x")
        await backend.move(session.id, path[0])
        await backend.append(session.id, [user()], expected=path[1], on_conflict="branch")
        await backend.set_label(session.id, path[0], "x")
        await backend.undo(session.id)
        await backend.redo(session.id)
        await backend.create_task(session.id, "t", NewSession())
        await backend.link_task(session.id, UNKNOWN, "u")
        await backend.import_entries(session.id, [placed(user(), "i", path[1])], leaf="i")
        await backend.retract(session.id, "i")
        changes = await backend.changes(session.id, 0, 100)
        assert [change.revision for change in changes] == list(range(1, 12))
        assert [change.reason for change in changes] == [
            "append", None, "move", "branch", None, "undo", "redo", None, None, "import", "retract",
        ]  # fmt: skip
        assert [len(change.entries) for change in changes] == [2, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0]
        assert (await session_info(backend, session.id)).revision == 11
        leaf = None
        for change in changes:
            if change.reason is not None:
                assert change.from_id == leaf
                leaf = change.to_id
        assert leaf == path[1]

    async def test_the_feed_tells_the_entries_of_a_revision_in_the_order_they_came(self, backend: Backend) -> None:
        session = await new_session(backend)
        entries = [placed(user(), "c"), placed(user(), "b", "c"), placed(user(), "a"), placed(user(), "d", "a")]
        await backend.import_entries(session.id, entries, leaf="b")
        (change,) = await backend.changes(session.id, 0, 9)
        assert ids_of(change.entries) == ["c", "b", "a", "d"]

    async def test_the_feed_can_be_resumed_anywhere(self, backend: Backend) -> None:
        session = await new_session(backend)
        for number in range(7):
            await add(backend, session.id, *talk(number % 3 + 1))
            await backend.update_session(session.id, title=str(number))
        everything = await backend.changes(session.id, 0, 100)
        assert len(everything) == 14
        for step in (1, 2, 5):
            read, after = [], 0
            while page := await backend.changes(session.id, after, step):
                assert len(page) <= step
                read += page
                after = page[-1].revision
            assert read == everything
        assert await backend.changes(session.id, 14, 10) == []
        assert await backend.changes(session.id, 99, 10) == []

    async def test_a_forks_feed_starts_at_its_creation(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        fork = await backend.fork(session.id, STORED, NewSession())
        await add(backend, session.id, *talk(2))
        appended = await backend.append(fork.id, talk(2))
        (change,) = await backend.changes(fork.id, 0, 10)
        assert (change.revision, change.from_id, change.to_id) == (1, session.leaf_id, appended.leaf_id)
        assert ids_of(change.entries) == list(appended.entry_ids)

    # -- notifications --------------------------------------------------------------------------------------------

    async def test_a_watcher_is_told_at_once_and_after_each_change(self, backend: Backend) -> None:
        session = await new_session(backend)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.notifications(session.id)) as told:
                await anext(told)
                for number in range(3):
                    await backend.append(session.id, talk(1))
                    await anext(told)
                    changes = await backend.changes(session.id, number, 10)
                    assert [change.revision for change in changes] == [number + 1]

    async def test_a_watcher_that_was_told_sees_the_change_that_came_while_it_looked(self, backend: Backend) -> None:
        session = await new_session(backend)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.notifications(session.id)) as told:
                await anext(told)
                async with anyio.create_task_group() as group:
                    for _ in range(5):
                        group.start_soon(backend.append, session.id, talk(1))
                    seen = 0
                    while seen < 5:
                        await anext(told)
                        seen += len(await backend.changes(session.id, seen, 10))

    async def test_a_watcher_is_not_told_of_other_sessions(self, backend: Backend) -> None:
        session, other = await new_session(backend), await new_session(backend)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.notifications(session.id)) as told:
                await anext(told)
                woken = anyio.Event()

                async def wait() -> None:
                    await anext(told)
                    woken.set()

                async with anyio.create_task_group() as group:
                    group.start_soon(wait)
                    for _ in range(5):
                        await add(backend, other.id, user())
                        await checkpoint()
                    assert not woken.is_set()
                    await add(backend, session.id, user())

    async def test_a_watcher_of_a_session_that_is_deleted_is_told(self, backend: Backend) -> None:
        session = await new_session(backend)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.notifications(session.id)) as told:
                await anext(told)
                await backend.delete_tree(session.id)
                await anext(told)

    async def test_a_watcher_of_a_session_that_is_not_there_is_told_at_once(self, backend: Backend) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.notifications(UNKNOWN)) as told:
                await anext(told)

    async def test_who_waits_for_commits_is_woken_by_each_in_any_session_and_by_none_when_the_store_closes(
        self, open_backend: OpenBackend
    ) -> None:
        backend = await open_backend(counted_sources())
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.commits()) as woken:
                await anext(woken)
                session = await new_session(backend)
                await anext(woken)
                await backend.set_budget(NewBudget("session", "tokens", 1, session.id))
                await anext(woken)
                await backend.delete_tree(session.id)
                await anext(woken)
                await backend.close()
                rest = [None async for _ in woken]
        assert len(rest) <= 1

    async def test_watching_ends_when_the_store_closes(self, open_backend: OpenBackend) -> None:
        backend = await open_backend(counted_sources())
        session = await new_session(backend)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with aclosing(backend.notifications(session.id)) as told:
                await anext(told)
                await backend.close()
                rest = [told_again async for told_again in told]
        assert len(rest) <= 1


class EndContract:
    """The end of a path and of a context, which is whole exchanges, wherever it begins."""

    async def test_the_end_of_a_path_is_its_last_entries(self, backend: Backend) -> None:
        session, ids = await talked(backend, 7)
        assert await end_ids(backend, session.id, 1) == ids[-1:]
        assert await end_ids(backend, session.id, 3) == ids[-3:]
        assert await end_ids(backend, session.id, 7) == ids
        assert await end_ids(backend, session.id, 8) == ids
        assert await end_ids(backend, session.id, 2, ids[3]) == ids[2:4]
        assert await end_ids(backend, session.id, 2, None) == []
        await backend.move(session.id, ids[2])
        (sibling,) = await add(backend, session.id, user())
        assert await end_ids(backend, session.id, 2) == [ids[2], sibling]
        assert await end_ids(backend, session.id, 2, ids[-1]) == ids[-2:]
        await assert_ends_are_whole(backend, session.id)

    async def test_the_end_of_an_empty_session_is_empty(self, backend: Backend) -> None:
        session = await new_session(backend)
        assert await end_ids(backend, session.id, 5) == []
        assert list((await backend.read_context_end(session.id, 5)).items) == []

    async def test_the_end_of_a_read_says_which_state_it_read(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        first, *_ = await path_ids(backend, session.id)
        info = await session_info(backend, session.id)
        whole = await backend.read_path(session.id)
        end = await backend.read_path_end(session.id, 1)
        assert (end.leaf_id, end.stored_leaf_id, end.revision, end.stamp) == (
            whole.leaf_id, whole.stored_leaf_id, whole.revision, whole.stamp,
        )  # fmt: skip
        context = await backend.read_context_end(session.id, 1, leaf=first)
        assert (context.leaf_id, context.stored_leaf_id, context.revision) == (first, info.leaf_id, info.revision)

    async def test_an_end_never_takes_a_result_without_its_call(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(1), call("a", "b"), result("b"), result("a"), *talk(2))
        ids = await path_ids(backend, session.id)
        for limit, count in ((1, 1), (2, 2), (3, 2), (4, 2), (5, 5), (6, 6)):
            assert await end_ids(backend, session.id, limit) == ids[-count:]
        await assert_ends_are_whole(backend, session.id)

    async def test_a_last_exchange_that_is_longer_than_the_limit_is_read_whole(self, backend: Backend) -> None:
        called = [f"c{number}" for number in range(30)]
        session = await new_session(backend, *talk(2), call(*called), *(result(each) for each in called))
        ids = await path_ids(backend, session.id)
        for limit in (1, 2, 30):
            assert await end_ids(backend, session.id, limit) == ids[-31:]
        assert await end_ids(backend, session.id, 31) == ids[-31:]
        assert await end_ids(backend, session.id, 32) == ids[-32:]

    async def test_a_late_result_reaches_back_to_its_call_only_where_it_is_the_end(self, backend: Backend) -> None:
        session = await new_session(backend, user(), call("late"), *talk(40), result("late"))
        ids = await path_ids(backend, session.id)
        assert await end_ids(backend, session.id, 5) == ids[1:]
        more = await add(backend, session.id, *talk(3))
        assert await end_ids(backend, session.id, 5) == list(more)

    async def test_a_result_without_a_call_is_an_exchange_of_its_own(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(9), result("lost"), *talk(2), call("a"), result("a"), result("a"))
        await assert_ends_are_whole(backend, session.id)
        ids = await path_ids(backend, session.id)
        assert await end_ids(backend, session.id, 6) == ids[-6:]
        assert await end_ids(backend, session.id, 2) == ids[-3:]

    async def test_an_id_that_is_called_by_again_is_another_call(self, backend: Backend) -> None:
        session = await new_session(backend, call("a"), result("a"), user(), call("a"), result("a"), *talk(1))
        await assert_ends_are_whole(backend, session.id)

    async def test_an_end_crosses_forks(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3), call("a", "b"), result("a"))
        current = session.id
        for number in range(4):
            fork = await backend.fork(current, STORED, NewSession())
            await add(backend, fork.id, *([result("b")] if number == 1 else talk(1, number)))
            current = fork.id
        await add(backend, session.id, *talk(5))
        await assert_ends_are_whole(backend, current)
        await backend.delete_tree(session.id)
        await assert_ends_are_whole(backend, current)

    async def test_the_end_of_a_context_leaves_out_the_summary_unless_everything_fits(self, backend: Backend) -> None:
        session, ids = await talked(backend, 6)
        (summary,) = await add(backend, session.id, compaction(ids[3]))
        after = await add(backend, session.id, *talk(2))
        kept = [*ids[3:], *after]

        async def end(limit: int) -> list[str]:
            return [item.entry_id for item in (await backend.read_context_end(session.id, limit)).items]

        assert await end(1) == kept[-1:]
        assert await end(4) == kept[-4:]
        assert await end(5) == kept
        assert await end(6) == [summary, *kept]
        assert await end(60) == [summary, *kept]
        await assert_ends_are_whole(backend, session.id)

    async def test_the_end_of_a_context_is_the_end_of_the_whole_one(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids = await add(
            backend, session.id, *talk(2), call("a", "b"), result("a"), result("b"), *talk(4), user("pinned")
        )
        await backend.set_pin(session.id, ids[3], True)
        await backend.set_pin(session.id, ids[-1], True)
        notes = [NewEntry.custom("note", number) for number in range(6)]
        more = await add(backend, session.id, *notes, NewEntry.branch_summary("elsewhere", from_id=None), call("c"))
        await add(
            backend, session.id, compaction(ids[6]), result("c"), compaction(ids[7]), *notes, *talk(2), result("b")
        )
        await add(
            backend, session.id, NewEntry.exclusion(more[-1]), NewEntry.exclusion(ids[8], 0), call("a"), result("a")
        )
        await backend.append(session.id, [NewEntry.exclusion(ids[-1]), *talk(1)])
        await assert_ends_are_whole(backend, session.id)

    async def test_what_is_excluded_is_not_counted_nor_are_results_of_what_is(self, backend: Backend) -> None:
        session = await new_session(backend)
        ids = await add(backend, session.id, *talk(2), call("a"), user("between"), result("a"), *talk(2))
        await add(backend, session.id, NewEntry.exclusion(ids[2]), NewEntry.exclusion(ids[5]))
        items = (await backend.read_context_end(session.id, 2)).items
        assert [item.entry_id for item in items] == [ids[3], ids[6]]
        await assert_ends_are_whole(backend, session.id)

    async def test_what_is_retracted_is_no_end(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        *ids, leaf = await path_ids(backend, session.id)
        fork = await backend.fork(session.id, leaf, NewSession())
        await backend.retract(session.id, leaf)
        assert await end_ids(backend, session.id, 2) == ids[-2:]
        assert await end_ids(backend, fork.id, 2) == [ids[-1], leaf]
        await raises(EntryNotFound, backend.read_path_end(session.id, 2, leaf=leaf))

    async def test_an_end_of_what_is_not_there_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        for read in (backend.read_path_end, backend.read_context_end):
            await raises(SessionNotFound, read(UNKNOWN, 1))
            await raises(EntryNotFound, read(session.id, 1, leaf=UNKNOWN))


class EntryContract:
    """Entries by their ids, those below another one, and all of them page by page."""

    # -- by their ids ---------------------------------------------------------------------------------------------

    async def test_entries_come_in_the_order_they_are_asked_for(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        path = await path_of(backend, session.id)
        first, second, third, fourth = ids_of(path)
        asked = [third, UNKNOWN, first, third, "", fourth, "\0", "\ud800"]
        assert await backend.get_entries(session.id, asked) == [
            path[2], None, path[0], path[2], None, path[3], None, None,
        ]  # fmt: skip
        assert await backend.get_entries(session.id, []) == []
        assert await backend.get_entries(session.id, [second]) == [path[1]]

    async def test_entries_are_those_the_session_sees_on_any_branch(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        path = await path_of(backend, session.id)
        ids = ids_of(path)
        fork = await backend.fork(session.id, ids[1], NewSession())
        (own,) = await add(backend, fork.id, user())
        (elsewhere,) = await add(backend, session.id, user())
        await backend.move(session.id, ids[0])
        await backend.retract(session.id, ids[0])
        asked = [*ids, own, elsewhere]
        for seen in (session.id, fork.id):
            found = await backend.get_entries(seen, asked)
            assert found == [await backend.get_entry(seen, entry_id) for entry_id in asked]
        assert [entry and entry.id for entry in await backend.get_entries(fork.id, asked)] == [
            *ids[:2],
            None,
            own,
            None,
        ]
        await backend.delete_tree(session.id)
        found = await backend.get_entries(fork.id, asked)
        assert [entry and (entry.id, entry.parent_id, entry.session_id) for entry in found] == [
            (ids[0], None, None), (ids[1], ids[0], None), None, (own, ids[1], fork.id), None,
        ]  # fmt: skip

    async def test_entries_that_are_retracted_are_found_by_those_who_did_not(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first, second = ids_of(await path_of(backend, session.id))
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.retract(session.id, second)
        assert [entry and entry.id for entry in await backend.get_entries(session.id, [second, first])] == [None, first]
        assert [entry and entry.id for entry in await backend.get_entries(fork.id, [second])] == [second]
        await backend.undo(session.id)
        assert [entry and entry.id for entry in await backend.get_entries(session.id, [second])] == [second]

    async def test_more_ids_than_a_statement_takes_parameters_are_found(self, backend: Backend) -> None:
        session = await new_session(backend, *(placed(user(), f"e{number}") for number in range(150)))
        asked = [f"e{number}" for number in range(40_000)]
        found = await backend.get_entries(session.id, asked)
        assert [entry.id for entry in found if entry is not None] == asked[:150]
        assert len(found) == len(asked)

    # -- of many sessions at once -------------------------------------------------------------------------------------

    async def test_entries_of_many_sessions_are_read_at_once(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        ids = ids_of(await path_of(backend, session.id))
        fork = await backend.fork(session.id, ids[1], NewSession())
        (own,) = await add(backend, fork.id, user())
        other = await new_session(backend, placed(user("elsewhere"), ids[0]), user("large " * 4_000))
        picture = await new_session(backend, user(base64.b64encode(bytes(range(256)) * 40).decode()))
        await backend.retract(session.id, ids[2])
        of_other, of_picture = [ids_of(await path_of(backend, each.id)) for each in (other, picture)]
        every = [*ids, own, *of_other, *of_picture, UNKNOWN, "", "\0", "\ud800"]
        sessions = [session.id, fork.id, other.id, picture.id]
        named = [(each, entry_id) for each in sessions for entry_id in every]
        found = await backend.read_named(named)
        assert found == [await backend.get_entry(*each) for each in named]
        assert {each.id for each in found if each is not None} == {*ids[:2], own, *of_other, *of_picture}
        assert await backend.read_named([named[0], named[0]]) == [found[0], found[0]]
        assert await backend.read_named([(UNKNOWN, ids[0]), ("\ud800", ids[0])]) == [None, None]
        assert await backend.read_named([]) == []
        await backend.delete_tree(session.id)
        left = [(fork.id, ids[0]), (session.id, ids[0]), (fork.id, own)]
        assert await backend.read_named(left) == [
            await backend.get_entry(fork.id, ids[0]), None, await backend.get_entry(fork.id, own),
        ]  # fmt: skip

    async def test_more_entries_than_a_statement_takes_parameters_are_found(self, backend: Backend) -> None:
        session = await new_session(backend, *(placed(user(), f"e{number}") for number in range(150)))
        named = [(session.id, f"e{number}") for number in range(20_000)]
        found = await backend.read_named(named)
        assert [entry.id for entry in found if entry is not None] == [entry_id for _, entry_id in named[:150]]
        assert len(found) == len(named)
        assert (await backend.places_of(named)).count("active") == 150

    async def test_where_entries_of_many_sessions_lie_is_told_at_once(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4))
        ids = ids_of(await path_of(backend, session.id))
        fork = await backend.fork(session.id, ids[2], NewSession())
        (own,) = await add(backend, fork.id, user())
        (summary,) = await add(backend, session.id, compaction(ids[1], "what was before"))
        (large,) = await add(backend, fork.id, compaction(own, "large " * 40_000))
        await backend.move(session.id, summary)
        empty = await backend.create_session(NewSession())
        every = [*ids, summary, own, large, UNKNOWN, "\ud800"]

        async def places(session_id: str) -> list[str | None]:
            return list(await backend.places_of([(session_id, entry_id) for entry_id in every]))

        after = ["compacted", "active", "active", "active", "active", None, None, None, None]
        of_fork = ["compacted", "compacted", "compacted", None, None, "active", "active", None, None]
        assert await places(session.id) == after
        assert await places(fork.id) == of_fork
        assert await places(empty.id) == await places(UNKNOWN) == [None] * len(every)
        both = [(each, entry_id) for entry_id in every for each in (session.id, fork.id)]
        assert await backend.places_of(both) == [place for pair in zip(after, of_fork, strict=True) for place in pair]
        await backend.move(session.id, ids[1])
        assert await places(session.id) == ["active"] * 2 + ["abandoned"] * 3 + [None] * 4
        await backend.move(session.id, None)
        assert await places(session.id) == ["abandoned"] * 5 + [None] * 4
        assert await backend.places_of([]) == []

    async def test_sessions_of_many_ids_are_read_at_once(self, backend: Backend) -> None:
        first = await new_session(backend, *talk(1))
        second = await backend.create_session(NewSession(title="second"))
        asked = [second.id, UNKNOWN, first.id, "\ud800", second.ref]
        found = await backend.get_sessions(asked)
        assert found == [await backend.get_session(each) for each in asked]
        await backend.delete_tree(second.id)
        again = await backend.create_session(NewSession(id=second.id))
        (entry_id,) = await add(backend, again.id, user("again"))
        assert await backend.get_sessions([second.ref, again.ref, first.id]) == [
            None, await backend.get_session(again.id), found[2],
        ]  # fmt: skip
        named = [(second.ref, entry_id), (again.ref, entry_id)]
        assert await backend.read_named(named) == [None, await backend.get_entry(again.id, entry_id)]
        assert await backend.places_of(named) == [None, "active"]

    # -- at the leaves of sessions ------------------------------------------------------------------------------------

    async def test_the_leaves_of_many_sessions_are_read_at_once(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        empty = await backend.create_session(NewSession())
        large = await new_session(backend, user("large " * 4_000))
        picture = await new_session(backend, user(base64.b64encode(bytes(range(256)) * 40).decode()))
        fork = await backend.fork(session.id, STORED, NewSession())
        leaves = [(await path_of(backend, each.id))[-1] for each in (session, large, picture)]
        asked = [large.id, fork.id, UNKNOWN, session.id, empty.id, "\ud800", "", picture.id, large.id]
        found = [leaves[1], leaves[0], None, leaves[0], None, None, None, leaves[2], leaves[1]]
        assert await backend.read_leaves(asked) == found
        assert await backend.read_leaves([]) == []
        await backend.delete_tree(session.id)
        assert await backend.read_leaves([session.id, session.ref, fork.id]) == [
            None, None, await backend.get_entry(fork.id, leaves[0].id),
        ]  # fmt: skip
        again = await backend.create_session(NewSession(id=session.id))
        added = await add(backend, again.id, user("again"))
        now = await backend.get_entry(again.id, added[0])
        assert await backend.read_leaves([session.ref, again.ref, session.id]) == [None, now, now]

    async def test_a_leaf_is_the_one_that_was_moved_to(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        path = await path_of(backend, session.id)
        await backend.move(session.id, path[0].id, reason="move")
        assert await backend.read_leaves([session.id]) == [path[0]]
        await backend.move(session.id, None, reason="move")
        assert await backend.read_leaves([session.id]) == [None]

    # -- in any session -------------------------------------------------------------------------------------------

    async def test_an_entry_is_found_whichever_session_has_it(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        other = await new_session(backend, *talk(2))
        path, elsewhere = await path_of(backend, session.id), await path_of(backend, other.id)
        for entry in (*path, *elsewhere):
            assert await backend.find_entry(entry.id) == entry
        for missing in (UNKNOWN, "", "\0", "\ud800"):
            assert await backend.find_entry(missing) is None
        await backend.retract(session.id, path[1].id)
        assert await backend.find_entry(path[1].id) == path[1]
        fork = await backend.fork(session.id, path[0].id, NewSession())
        await backend.delete_tree(session.id)
        assert await backend.find_entry(path[1].id) is None
        found = await backend.find_entry(path[0].id)
        assert found == await backend.get_entry(fork.id, path[0].id)
        assert found is not None
        assert found.session_id is None

    async def test_an_id_that_two_trees_have_is_ambiguous(self, backend: Backend) -> None:
        first = await new_session(backend, placed(user("one"), "same"))
        second = await new_session(backend, placed(user("two"), "same"))
        fork = await backend.fork(second.id, STORED, NewSession())
        caught = await raises(AmbiguousId, backend.find_entry("same"), match="entry 'same' is in several histories")
        assert caught.value.matches == tuple(sorted((first.id, second.id)))
        await backend.delete_tree(second.id)
        caught = await raises(AmbiguousId, backend.find_entry("same"))
        assert caught.value.matches == tuple(sorted((first.id, fork.id)))
        await backend.delete_tree(first.id)
        assert existing(await backend.find_entry("same")).message.content == "two"

    # -- below another one ----------------------------------------------------------------------------------------

    async def test_the_children_of_an_entry_are_those_that_name_it_as_their_parent(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first, second = ids_of(await path_of(backend, session.id))
        await backend.move(session.id, first)
        third, _ = await add(backend, session.id, *talk(2))
        await backend.append(session.id, [user()], expected=first, on_conflict="branch")
        fourth = (await backend.read_tree(session.id))[-1].id
        await backend.move(session.id, None)
        (root,) = await add(backend, session.id, user())
        assert await child_ids(backend, session.id, first) == [second, third, fourth]
        assert await child_ids(backend, session.id, second) == []
        assert await child_ids(backend, session.id, None) == [first, root]
        tree = await backend.read_tree(session.id)
        for parent_id in (None, *ids_of(tree)):
            expected = [entry for entry in tree if entry.parent_id == parent_id]
            assert await backend.children(session.id, parent_id) == expected

    async def test_children_are_imported_in_any_order_and_told_as_they_came(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user(), "root"))
        await backend.import_entries(
            session.id, [placed(user(), each, "root") for each in ("c", "a", "b")], leaf="a", expected="root"
        )
        assert await child_ids(backend, session.id, "root") == ["c", "a", "b"]

    async def test_a_session_does_not_see_the_children_that_others_added(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first, second = ids_of(await path_of(backend, session.id))
        fork = await backend.fork(session.id, first, NewSession())
        (own,) = await add(backend, fork.id, user())
        later = await backend.fork(session.id, second, NewSession())
        await backend.move(later.id, first)
        (third,) = await add(backend, later.id, user())
        assert await child_ids(backend, session.id, first) == [second]
        assert await child_ids(backend, fork.id, first) == [own]
        assert await child_ids(backend, later.id, first) == [second, third]
        assert await child_ids(backend, fork.id, None) == [first]
        await raises(EntryNotFound, backend.children(fork.id, second))
        await backend.delete_tree(session.id)
        assert await child_ids(backend, later.id, first) == [second, third]
        assert await child_ids(backend, fork.id, first) == [own]

    async def test_what_is_retracted_is_no_child(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first, second = ids_of(await path_of(backend, session.id))
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.retract(session.id, second)
        assert await child_ids(backend, session.id, first) == []
        assert await child_ids(backend, fork.id, first) == [second]
        await raises(EntryNotFound, backend.children(session.id, second))

    # -- page by page ---------------------------------------------------------------------------------------------

    async def test_pages_of_entries_are_the_tree_in_its_order(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(5))
        first, *_, last = ids_of(await path_of(backend, session.id))
        for number in range(3):
            await backend.move(session.id, first)
            await add(backend, session.id, NewEntry.custom("note", number), *talk(number + 1), compaction(first))
            await backend.append(session.id, [NewEntry.custom("note", "branch")], expected=last, on_conflict="branch")
        await add(backend, session.id, NewEntry.exclusion(first), NewEntry.custom("other", None))
        await assert_pages_are_the_tree(backend, session.id)
        assert await pages(backend, (await new_session(backend)).id) == []

    async def test_pages_of_what_was_imported_at_once_come_in_the_order_it_came(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user(), "root"))
        shape = [("c", "root"), ("b", "c"), ("a", "root"), ("d", "a"), ("e", "b"), ("f", None), ("g", "a"), ("h", "e")]
        entries = [placed(user(), entry_id, parent) for entry_id, parent in shape]
        await backend.import_entries(session.id, entries, leaf="d", expected="root")
        assert await pages(backend, session.id, limit=2) == ["root", *(entry_id for entry_id, _ in shape)]
        await assert_pages_are_the_tree(backend, session.id)

    async def test_pages_begin_with_what_a_session_inherited(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4), NewEntry.custom("note", 1))
        path = ids_of(await path_of(backend, session.id))
        fork = await backend.fork(session.id, path[3], NewSession())
        await add(backend, fork.id, *talk(2), NewEntry.custom("note", 2))
        again = await backend.fork(fork.id, STORED, NewSession())
        await add(backend, session.id, *talk(2))
        await add(backend, again.id, *talk(2))
        await backend.move(again.id, path[0])
        await add(backend, again.id, *talk(1))
        for seen in (session, fork, again):
            await assert_pages_are_the_tree(backend, seen.id)
        await backend.delete_tree(session.id)
        await backend.delete_tree(fork.id)
        await assert_pages_are_the_tree(backend, again.id)

    async def test_pages_leave_out_what_is_retracted_and_go_on_behind_it(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(6))
        ids = ids_of(await path_of(backend, session.id))
        fork = await backend.fork(session.id, STORED, NewSession())
        for entry_id in (ids[5], ids[4], ids[3]):
            await backend.retract(session.id, entry_id)
        more = await add(backend, session.id, *talk(2))
        await backend.retract(fork.id, ids[5])
        own = await add(backend, fork.id, *talk(1))
        assert await pages(backend, session.id) == [*ids[:3], *more]
        assert await pages(backend, fork.id) == [*ids[:5], *own]
        for seen in (session, fork):
            await assert_pages_are_the_tree(backend, seen.id)
        assert ids_of(await backend.read_entries(session.id, after=ids[4])) == list(more)
        assert ids_of(await backend.read_entries(session.id, after=ids[4], newest_first=True)) == ids[2::-1]
        assert ids_of(await backend.read_entries(fork.id, after=ids[5])) == list(own)

    async def test_entries_that_are_added_meanwhile_are_met_at_the_end(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(3))
        first, second, third = ids_of(await path_of(backend, session.id))
        assert ids_of(await backend.read_entries(session.id, limit=2)) == [first, second]
        await backend.move(session.id, first)
        (late,) = await add(backend, session.id, user())
        assert ids_of(await backend.read_entries(session.id, after=second, limit=2)) == [third, late]

    async def test_a_page_behind_what_the_session_never_saw_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first, second = ids_of(await path_of(backend, session.id))
        fork = await backend.fork(session.id, first, NewSession())
        for after in (UNKNOWN, "", second):
            await raises(EntryNotFound, backend.read_entries(fork.id, after=after))
        await raises(SessionNotFound, backend.read_entries(UNKNOWN))

    async def test_looking_up_in_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        await raises(SessionNotFound, backend.get_entries(UNKNOWN, [UNKNOWN]))
        await raises(SessionNotFound, backend.children(UNKNOWN, None))
        session = await new_session(backend, user())
        await raises(EntryNotFound, backend.children(session.id, UNKNOWN))
