"""The contract: entries by their ids, those below another one, and all of them page by page."""

from __future__ import annotations

import base64

import pytest

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import AmbiguousId, EntryNotFound, SessionNotFound
from tests.samples import UNKNOWN, add, compaction, ids_of, new_session, path_of, placed, talk, user


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


class EntryContract:
    """Looking entries up."""

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
        with pytest.raises(AmbiguousId, match="entry 'same' is in several histories") as caught:
            await backend.find_entry("same")
        assert caught.value.matches == tuple(sorted((first.id, second.id)))
        await backend.delete_tree(second.id)
        with pytest.raises(AmbiguousId) as caught:
            await backend.find_entry("same")
        assert caught.value.matches == tuple(sorted((first.id, fork.id)))
        await backend.delete_tree(first.id)
        found = await backend.find_entry("same")
        assert found is not None
        assert found.message.content == "two"

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
        with pytest.raises(EntryNotFound):
            await backend.children(fork.id, second)
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
        with pytest.raises(EntryNotFound):
            await backend.children(session.id, second)

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
            with pytest.raises(EntryNotFound):
                await backend.read_entries(fork.id, after=after)
        with pytest.raises(SessionNotFound):
            await backend.read_entries(UNKNOWN)

    async def test_looking_up_in_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        with pytest.raises(SessionNotFound):
            await backend.get_entries(UNKNOWN, [UNKNOWN])
        with pytest.raises(SessionNotFound):
            await backend.children(UNKNOWN, None)
        session = await new_session(backend, user())
        with pytest.raises(EntryNotFound):
            await backend.children(session.id, UNKNOWN)
