"""The contract: entries that bring their own ids, parents and times."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flue_py.core.entries import NewEntry
from flue_py.core.ledger import CallId, NewBudget
from flue_py.core.sessions import STORED, Mark, NewSession
from flue_py.core.usage import PaidCall, UsageTotals
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, InvalidEntry, LeafConflict, SessionExists, SessionNotFound
from tests.checks import Refusals, refused, unchanged
from tests.samples import (
    UNKNOWN,
    compaction,
    new_session,
    path_ids,
    path_of,
    placed,
    session_info,
    talk,
    tree_ids,
    user,
)

REFUSED: dict[str, Callable[[], tuple[list[NewEntry], str | None]]] = {
    "an unknown parent": lambda: ([placed(user(), "a", UNKNOWN)], "a"),
    "its own parent": lambda: ([placed(user(), "a", "a")], "a"),
    "a cycle": lambda: ([placed(user(), "a", "b"), placed(user(), "b", "a")], "b"),
    "a parent that comes later": lambda: ([placed(user(), "a", "b"), placed(user(), "b")], "a"),
    "an unknown leaf": lambda: ([placed(user(), "a")], UNKNOWN),
    "an unknown reference": lambda: ([placed(user(), "a"), placed(compaction(UNKNOWN), "b", "a")], "b"),
    "a parent in another tree": lambda: ([placed(user(), "a", "foreign")], "a"),
    "a leaf in another tree": lambda: ([placed(user(), "a")], "foreign"),
    "a parent that only a fork sees": lambda: ([placed(user(), "a", "forked")], "a"),
    "a leaf that only a fork sees": lambda: ([], "forked"),
}


class ImportContract:
    """Importing."""

    async def test_an_import_keeps_ids_parents_times_and_kinds(self, backend: Backend) -> None:
        session = await new_session(backend)
        entries = [
            placed(user("root"), "r", None, 100),
            placed(user("left"), "l", "r", 300),
            placed(NewEntry.custom("label", {"x": 1}), "m", "r", 200),
            placed(user("second root"), "s", None, 50),
            placed(compaction("l"), "c", "l", 400),
        ]
        imported = await backend.import_entries(session.id, entries, leaf="m")
        assert (imported.entry_ids, imported.leaf_id, imported.revision) == (("r", "l", "m", "s", "c"), "m", 1)
        assert (imported.on_branch, imported.replayed) == (False, False)
        tree = await backend.read_tree(session.id)
        assert [(entry.id, entry.parent_id, entry.depth, entry.created_us) for entry in tree] == [
            ("r", None, 0, 100),
            ("l", "r", 1, 300),
            ("m", "r", 1, 200),
            ("s", None, 0, 50),
            ("c", "l", 2, 400),
        ]
        assert [(entry.revision, entry.ordinal) for entry in tree] == [(1, n) for n in range(5)]
        assert await path_ids(backend, session.id) == ["r", "m"]
        info = await session_info(backend, session.id)
        assert (info.leaf_id, info.entry_count, info.message_count) == ("m", 5, 3)

    async def test_an_import_is_one_change_of_the_feed(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(1))
        await backend.import_entries(session.id, [placed(user(), "a", session.leaf_id)], leaf="a")
        (change,) = await backend.changes(session.id, session.revision, 10)
        assert (change.reason, change.from_id, change.to_id) == ("import", session.leaf_id, "a")
        assert [entry.id for entry in change.entries] == ["a"]

    async def test_an_import_may_build_on_what_the_session_sees(self, backend: Backend) -> None:
        source = await new_session(backend, placed(user(), "a"), placed(user(), "b"))
        fork = await backend.fork(source.id, "b", NewSession())
        await backend.import_entries(fork.id, [placed(user(), "x", "a"), placed(compaction("b"), "y", "b")], leaf="x")
        assert await path_ids(backend, fork.id) == ["a", "x"]
        assert await path_ids(backend, fork.id, "y") == ["a", "b", "y"]
        assert await tree_ids(backend, source.id) == ["a", "b"]

    async def test_an_import_may_set_the_leaf_to_none_or_to_an_older_entry(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user(), "a"), placed(user(), "b"))
        await backend.import_entries(session.id, [placed(user(), "c", "b")], leaf="a")
        assert await path_ids(backend, session.id) == ["a"]
        await backend.import_entries(session.id, [placed(user(), "d", "c")], leaf=None)
        assert await path_ids(backend, session.id) == []
        assert await path_ids(backend, session.id, "d") == ["a", "b", "c", "d"]

    async def test_an_import_of_a_leaf_alone_moves_it(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user(), "a"), placed(user(), "b"))
        imported = await backend.import_entries(session.id, [], leaf="a")
        assert (imported.entry_ids, imported.leaf_id, imported.revision) == ((), "a", session.revision + 1)
        moved = await backend.undo(session.id)
        assert moved is not None
        assert moved.to_id == "b"

    async def test_an_import_of_nothing_changes_nothing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        async with unchanged(backend):
            imported = await backend.import_entries(session.id, [], leaf=session.leaf_id)
        assert (imported.entry_ids, imported.leaf_id, imported.revision) == ((), session.leaf_id, session.revision)

    async def test_a_long_imported_chain_with_branches_keeps_its_shape(self, backend: Backend) -> None:
        session = await new_session(backend)
        entries = [placed(user(), "n0")]
        entries += [placed(user(), f"n{n}", f"n{(n * 7919) % n}", n) for n in range(1, 200)]
        await backend.import_entries(session.id, entries, leaf="n199")
        tree = {entry.id: entry for entry in await backend.read_tree(session.id)}
        assert {new.id: new.parent_id for new in entries} == {entry.id: entry.parent_id for entry in tree.values()}
        for entry in tree.values():
            assert entry.depth == (0 if entry.parent_id is None else tree[entry.parent_id].depth + 1)
        assert [entry.depth for entry in await path_of(backend, session.id)] == list(range(tree["n199"].depth + 1))

    async def test_ids_are_taken_by_entries_of_the_tree_also_by_retracted_ones(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user(), "a"), placed(user(), "b"))
        fork = await backend.fork(session.id, "a", NewSession())
        await backend.append(fork.id, [placed(user(), "f")])
        await backend.retract(session.id, "b")
        asked = ["a", "b", "f", UNKNOWN, "", "nul\0", "half \ud800", "a"]
        assert await backend.taken_entry_ids(session.id, asked) == {"a", "b", "f"}
        assert await backend.taken_entry_ids(session.id, []) == set()
        many = [f"n{number}" for number in range(6_000)]
        assert await backend.taken_entry_ids(session.id, [*many, "b"]) == {"b"}
        with pytest.raises(SessionNotFound):
            await backend.taken_entry_ids(UNKNOWN, ["a"])

    async def test_a_session_is_imported_together_with_its_entries(self, backend: Backend) -> None:
        new = NewSession(id="old", key="k", title="x", scope="s", metadata_text='{"a":1}', created_us=5)
        entries = [placed(user("why?"), "a", None, 1), placed(user(), "b", "a", 2), placed(user(), "c", "a", 3)]
        marks = [Mark("a", "label", "start"), Mark("c", "pin", "on")]
        session = await backend.import_session(new, entries, leaf="b", marks=marks)
        assert session == await session_info(backend, "old")
        assert await backend.read_marks("old") == marks
        assert (session.kind, session.key, session.scope, session.created_us) == ("root", "k", "s", 5)
        assert (session.leaf_id, session.revision, session.entry_count) == ("b", 1, 3)
        assert session.first_message == "why?"
        assert await path_ids(backend, "old") == ["a", "b"]
        (change,) = await backend.changes("old", 0, 10)
        assert (change.reason, change.from_id, change.to_id) == ("import", None, "b")

    async def test_a_session_is_imported_as_a_whole_or_not_at_all(self, backend: Backend) -> None:
        await backend.create_session(NewSession(key="taken"))
        refusals = Refusals(backend)
        async with refusals.refused(EntryNotFound):
            await backend.import_session(NewSession(), [placed(user(), "a"), placed(user(), "b", UNKNOWN)], leaf="a")
        async with refusals.refused(EntryNotFound):
            await backend.import_session(NewSession(), [placed(user(), "a")], leaf=UNKNOWN)
        async with refusals.refused(InvalidEntry):
            await backend.import_session(NewSession(), [placed(user(), "a"), placed(user(), "a")], leaf="a")
        async with refusals.refused(SessionExists):
            await backend.import_session(NewSession(key="taken"), [placed(user(), "a")], leaf="a")
        empty = await backend.import_session(NewSession(), [], leaf=None)
        assert (empty.revision, empty.leaf_id) == (0, None)

    @pytest.mark.parametrize("what", REFUSED)
    async def test_an_import_that_names_what_the_session_does_not_see_is_refused(
        self, backend: Backend, what: str
    ) -> None:
        await new_session(backend, placed(user(), "foreign"))
        session = await new_session(backend, placed(user(), "base"))
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.append(fork.id, [placed(user(), "forked")])
        entries, leaf = REFUSED[what]()
        async with refused(backend, EntryNotFound):
            await backend.import_entries(session.id, [placed(user(), "fine", "base"), *entries], leaf=leaf)

    async def test_a_session_that_has_only_a_bill_goes_to_another_scope_with_it(self, backend: Backend) -> None:
        imported = '{"imported":{}}'
        bill = await backend.create_session(NewSession(scope="a", metadata_text=imported))
        other = await backend.create_session(NewSession(scope="b"))
        calls = [PaidCall(UsageTotals(input=5, total_tokens=5), "p", call_id=name) for name in ("one", "two")]
        for call in calls:
            await backend.record_call(bill.id, call)
        await backend.record_call(other.id, calls[1])
        budget = await backend.set_budget(NewBudget("session", "tokens", 9, bill.id))
        adopted = await backend.adopt_session(bill.id, "b")
        assert adopted == await session_info(backend, bill.id)
        assert (adopted.scope, adopted.revision, adopted.spent_tokens) == ("b", 3, 10)
        names = [CallId("p", name) for name in ("one", "two")]
        found = [{call.call_id for call in await backend.find_calls(scope, names)} for scope in ("a", "b")]
        assert found == [{"two"}, {"one", "two"}]
        assert [each.scope for each in await backend.covering_budgets(bill.id)] == [budget.scope.replace("a", "b")]
        assert (await backend.verify()).problems == []
        refusals = Refusals(backend)
        talked = await backend.import_session(NewSession(metadata_text=imported), [placed(user(), "m")], leaf="m")
        parent = await backend.create_session(NewSession(metadata_text=imported))
        await backend.create_task(parent.id, "t", NewSession())
        keyed = await backend.create_session(NewSession(key="k", metadata_text=imported))
        for refused_one in (talked, parent, keyed, other):
            async with refusals.refused(SessionExists):
                await backend.adopt_session(refused_one.id, "c")

    async def test_an_imported_id_that_is_taken_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user(), "a"))
        refusals = Refusals(backend)
        for entries in ([placed(user(), "a")], [placed(user(), "b"), placed(user(), "b", "b")]):
            async with refusals.refused(InvalidEntry):
                await backend.import_entries(session.id, entries, leaf=None)

    async def test_an_import_compares_the_leaf(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        async with refused(backend, LeafConflict):
            await backend.import_entries(session.id, [placed(user(), "a")], leaf="a", expected=None)
        await backend.import_entries(session.id, [placed(user(), "a")], leaf="a", expected=session.leaf_id)
        assert await path_ids(backend, session.id) == ["a"]

    async def test_an_import_into_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        async with refused(backend, SessionNotFound):
            await backend.import_entries(UNKNOWN, [placed(user(), "a")], leaf="a")
