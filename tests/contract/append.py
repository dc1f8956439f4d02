"""The contract: appends and imports: where entries land, what is compared before, and what a retry does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import product
from typing import TypedDict

import pytest
from msgspec.structs import replace

from flue_py import Store, errors
from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.ledger import CallId, NewBudget
from flue_py.core.sessions import STORED, Appended, Deletion, Expected, Mark, NewSession, Seen
from flue_py.core.usage import PaidCall, UsageTotals
from flue_py.db.backend import Backend
from tests.checks import Refusals, naming, raises, refusal, refused, unchanged
from tests.samples import (
    UNKNOWN,
    add,
    assistant,
    compaction,
    new_session,
    path_ids,
    path_of,
    placed,
    session_info,
    talk,
    talked,
    tree_ids,
    user,
)
from tests.sources import START_US, OpenBackend, repeating_sources
from tests.tables import inputs
from tests.together import outcomes, together
from tests.values import existing

REFUSED: dict[str, tuple[list[NewEntry], str | None]] = {
    "an unknown parent": ([placed(user(), "a", UNKNOWN)], "a"),
    "its own parent": ([placed(user(), "a", "a")], "a"),
    "a cycle": ([placed(user(), "a", "b"), placed(user(), "b", "a")], "b"),
    "a parent that comes later": ([placed(user(), "a", "b"), placed(user(), "b")], "a"),
    "an unknown leaf": ([placed(user(), "a")], UNKNOWN),
    "an unknown reference": ([placed(user(), "a"), placed(compaction(UNKNOWN), "b", "a")], "b"),
    "a parent in another tree": ([placed(user(), "a", "foreign")], "a"),
    "a leaf in another tree": ([placed(user(), "a")], "foreign"),
    "a parent that only a fork sees": ([placed(user(), "a", "forked")], "a"),
    "a leaf that only a fork sees": ([], "forked"),
}


_Written = tuple[str, str, int]
_Write = Callable[[Backend, str, str, Expected], Awaitable[object]]

WRITES: dict[str, _Write] = {
    "append": lambda backend, session, entry, seen: backend.append(session, [user()], expected=seen),
    "branch": lambda backend, session, entry, seen: backend.append(
        session, [user()], expected=seen, on_conflict="branch"
    ),
    "rebase": lambda backend, session, entry, seen: backend.append(
        session, [user()], expected=seen, on_conflict="rebase"
    ),
    "import": lambda backend, session, entry, seen: backend.import_entries(
        session, [placed(user(), "new")], leaf="new", expected=seen
    ),
    "move": lambda backend, session, entry, seen: backend.move(session, entry, expected=seen),
    "retract": lambda backend, session, entry, seen: backend.retract(session, "leaf", expected=seen),
    "undo": lambda backend, session, entry, seen: backend.undo(session, expected=seen),
    "redo": lambda backend, session, entry, seen: backend.redo(session, expected=seen),
    "go back": lambda backend, session, entry, seen: backend.go_back(session, 1, expected=seen),
    "go back to an edit": lambda backend, session, entry, seen: backend.go_back(session, 3, before=True, expected=seen),
    "fork": lambda backend, session, entry, seen: backend.fork(session, STORED, NewSession(), expected=seen),
    "task": lambda backend, session, entry, seen: backend.create_task(session, "t", NewSession(), expected=seen),
    "link": lambda backend, session, entry, seen: backend.link_task(session, "child", "t", expected=seen),
    "end": lambda backend, session, entry, seen: backend.end_task(session, "done", expected=seen),
    "label": lambda backend, session, entry, seen: backend.set_label(session, entry, "label", expected=seen),
    "pin": lambda backend, session, entry, seen: backend.set_pin(session, entry, True, expected=seen),
    "title": lambda backend, session, entry, seen: backend.update_session(session, title="new", expected=seen),
    "delete": lambda backend, session, entry, seen: backend.delete_tree(session, expected=seen),
}
ANSWERS_ANOTHER_LEAF = ("branch", "rebase")


async def _written(backend: Backend) -> _Written:
    """Return a session with something to undo and to go back to, one of its entries, and its revision."""
    session = await new_session(backend, *talk(2))
    leaf = placed(user("leaf"), "leaf")
    await backend.append(session.id, [leaf])
    await backend.link_task((await new_session(backend)).id, session.id, "t")
    await backend.update_session(session.id, title="old")
    info = await session_info(backend, session.id)
    return session.id, session.leaf_id or "", info.revision


async def _failures(
    backend: Backend, names: Iterable[str], check: Callable[[Backend, str, _Written], Awaitable[None]]
) -> dict[str, str]:
    """Check each write, on a new session after a failure, and return the failures by the name of the write."""
    failures = {}
    written = await _written(backend)
    for name in names:
        try:
            await check(backend, name, written)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001
            failures[name] = repr(error)
            written = await _written(backend)
    return failures


async def _is_refused_at_another_revision(backend: Backend, write: str, written: _Written) -> None:
    session, entry, revision = written
    refusals = Refusals(backend)
    for named in (0, revision - 1, revision + 1):
        caught = await refusals.of(errors.RevisionConflict, WRITES[write](backend, session, entry, Seen("leaf", named)))
        error = caught.value
        assert (error.session_id, error.expected, error.actual) == (session, named, revision)


async def _is_refused_at_another_leaf(backend: Backend, write: str, written: _Written) -> None:
    session, entry, revision = written
    refusals = Refusals(backend)
    for named in (entry, UNKNOWN, None):
        caught = await refusals.of(errors.LeafConflict, WRITES[write](backend, session, entry, Seen(named, revision)))
        error = caught.value
        assert (error.session_id, error.expected, error.actual) == (session, named, "leaf")


async def _happens(backend: Backend, write: str, _: _Written) -> None:
    session, entry, revision = await _written(backend)
    before = await backend.info()
    await WRITES[write](backend, session, entry, Seen("leaf", revision))
    found = await backend.get_session(session)
    after = await backend.info()
    is_changed = found is None or found.revision > revision or after.sessions > before.sessions
    assert is_changed is (write != "redo")


class _Line(TypedDict):
    role: str
    content: str


class AppendContract:
    """Appending entries, and how they are stored."""

    async def test_an_append_is_a_chain_below_the_leaf(self, backend: Backend) -> None:
        session = await new_session(backend)
        first = await backend.append(session.id, talk(2))
        second = await backend.append(session.id, talk(3))
        assert first.leaf_id == first.entry_ids[-1]
        assert (second.leaf_id, second.revision) == (second.entry_ids[-1], 2)
        assert (second.on_branch, second.replayed, second.surrogates_replaced) == (False, False, 0)
        path = await path_of(backend, session.id)
        assert [entry.id for entry in path] == [*first.entry_ids, *second.entry_ids]
        assert [entry.parent_id for entry in path] == [None, *[entry.id for entry in path[:-1]]]
        assert [entry.depth for entry in path] == [0, 1, 2, 3, 4]
        assert (await session_info(backend, session.id)).leaf_id == second.leaf_id

    async def test_the_values_of_messages_may_be_of_any_type_that_json_has(self, backend: Backend) -> None:
        line: _Line = {"role": "user", "content": "of a type of its own"}
        values: dict[str, object] = {**line}
        store = Store(backend)
        session = await store.create_session()
        await session.append_message(line)
        await session.append_messages([values, line])
        async with store.atomic() as batch:
            batch.append_message(session, line)
        await store.append_messages(session, [values])
        assert await session.build_context() == [line] * 5
        with pytest.raises(errors.InvalidEntry, match=r"message\.content"):
            await session.append_message({**values, "content": object()})

    async def test_a_batch_is_one_revision_with_its_entries_in_order(self, backend: Backend) -> None:
        session = await new_session(backend)
        await add(backend, session.id, *talk(2))
        await add(backend, session.id, *talk(3))
        path = await path_of(backend, session.id)
        assert [(entry.revision, entry.ordinal) for entry in path] == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
        assert {entry.session_id for entry in path} == {session.id}

    async def test_an_append_is_one_change_of_the_feed(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        appended = await backend.append(session.id, talk(2))
        (change,) = await backend.changes(session.id, session.revision, 10)
        assert (change.session_id, change.revision, change.reason) == (session.id, appended.revision, "append")
        assert (change.from_id, change.to_id) == (session.leaf_id, appended.leaf_id)
        assert list(change.entries) == (await path_of(backend, session.id))[2:]
        assert change.at_us is not None

    async def test_an_entry_has_the_time_of_the_store_unless_it_brings_its_own(self, backend: Backend) -> None:
        session = await new_session(backend, user(), replace(user(), created_us=5))
        made, brought = await path_of(backend, session.id)
        assert made.created_us > START_US
        assert brought.created_us == 5

    @inputs(
        "message",
        [
            {"role": "user", "content": "a\u0000b", "z": 1, "a": {"y": None, "b": [True, 1.5, -0.0, 10**15]}},
            {
                "role": "user",
                "content": [{"type": "text", "text": "日本 🚨 \u2028 e\u0301"}, {"type": "x-new", "q": {}}],
            },
            {"role": "assistant", "content": [], "stopReason": "aborted", "errorMessage": 'she said "\\n"'},
            {"role": "toolResult", "toolCallId": "t1", "toolName": "bash", "content": [], "isError": False},
            {"role": "user", "content": "", "timestamp": 1700000000000, "unknownField": {"nested": [[[]]]}},
        ],
    )
    async def test_a_message_comes_back_value_for_value_and_in_its_own_key_order(
        self, backend: Backend, message: JsonObject
    ) -> None:
        new = NewEntry.message(message, "retry")
        session = await new_session(backend, new)
        (entry,) = await path_of(backend, session.id)
        assert entry.payload == new.payload
        assert entry.fields == message
        assert list(entry.fields) == list(message)
        assert (entry.kind, entry.role, entry.source) == ("message", message["role"], "retry")

    @inputs("data", [None, True, 0, "text", [1, None], {"a": 1}])
    async def test_unknown_kinds_survive_with_whatever_data_they_hold(self, backend: Backend, data: JsonValue) -> None:
        session = await new_session(backend, NewEntry.custom("model_change", data), NewEntry.custom("x.y:z-1", data))
        entries = await path_of(backend, session.id)
        assert [entry.kind for entry in entries] == ["model_change", "x.y:z-1"]
        assert [entry.data for entry in entries] == [data, data]
        assert [entry.role for entry in entries] == [None, None]

    async def test_fields_that_an_imported_row_carried_beside_its_payload_are_kept(self, backend: Backend) -> None:
        session = await new_session(backend, replace(user(), extra='{"b":1,"a":"\\u0000"}'), user())
        carrying, plain = await path_of(backend, session.id)
        assert (carrying.extra, plain.extra) == ('{"b":1,"a":"\\u0000"}', None)

    async def test_an_append_says_how_many_lone_surrogates_were_replaced(self, backend: Backend) -> None:
        session = await new_session(backend)
        appended = await backend.append(session.id, [user("\ud800 a \udfff"), user("b"), user("\udc00")])
        assert appended.surrogates_replaced == 3
        assert (await path_of(backend, session.id))[0].fields["content"] == "\ufffd a \ufffd"

    @inputs("name", ["half \ud800", "a\0b", "日本 🚨"])
    async def test_names_of_models_and_providers_may_be_any_text(self, backend: Backend, name: str) -> None:
        before = (await backend.info()).ledger_rows
        call = {"input": 5, "totalTokens": 5, "provider": name, "model": name, "callId": name}
        session = await new_session(backend, assistant(tokens=1, provider=name, model=name))
        assert session.leaf_id is not None
        await add(
            backend,
            session.id,
            NewEntry.compaction("x", first_kept_entry_id=session.leaf_id, tokens_before=1, calls=[call]),
        )
        assert (await session_info(backend, session.id)).spent_tokens == 6
        assert (await backend.info()).ledger_rows == before + 2

    async def test_an_empty_append_changes_nothing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        async with unchanged(backend):
            appended = await backend.append(session.id, [])
            named = await backend.append(session.id, [], expected=session.leaf_id, on_conflict="branch")
        assert (appended.entry_ids, appended.leaf_id, appended.revision) == ((), session.leaf_id, session.revision)
        assert (named.entry_ids, named.leaf_id, named.on_branch) == ((), session.leaf_id, False)

    async def test_an_empty_append_still_compares_the_leaf(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await refusal(backend, errors.LeafConflict, backend.append(session.id, [], expected=None))

    async def test_an_append_before_the_first_entry_makes_another_root(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await backend.move(session.id, None)
        (root,) = await add(backend, session.id, user("again"))
        (entry,) = await path_of(backend, session.id)
        assert (entry.id, entry.parent_id, entry.depth) == (root, None, 0)
        assert len(await tree_ids(backend, session.id)) == 3

    async def test_an_append_below_an_older_entry_makes_a_sibling(self, backend: Backend) -> None:
        session, (first, second, third) = await talked(backend, 3)
        await backend.move(session.id, first)
        (sibling,) = await add(backend, session.id, user())
        assert await path_ids(backend, session.id) == [first, sibling]
        assert await path_ids(backend, session.id, third) == [first, second, third]
        assert await tree_ids(backend, session.id) == [first, second, third, sibling]

    async def test_counters_and_first_message_follow_appends(self, backend: Backend) -> None:
        session = await new_session(backend, assistant("hello"), NewEntry.custom("note", 1))
        assert (session.entry_count, session.message_count, session.first_message) == (2, 1, None)
        await add(backend, session.id, user(" "), user("why?\nbecause"), user("later"))
        await add(backend, session.id, user("last"), NewEntry.branch_summary("tried", from_id=None))
        info = await session_info(backend, session.id)
        assert (info.entry_count, info.message_count, info.first_message) == (7, 5, "why?")

    # -- ids --------------------------------------------------------------------------------------------------

    async def test_entry_ids_that_are_given_are_kept(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user(), "mine"), user(), placed(user(), "Ünïque 🔑"))
        ids = await path_ids(backend, session.id)
        assert (ids[0], ids[2]) == ("mine", "Ünïque 🔑")
        assert await backend.get_entry(session.id, "Ünïque 🔑") is not None

    async def test_a_generated_entry_id_that_is_taken_is_asked_for_again(self, open_backend: OpenBackend) -> None:
        backend = await open_backend(repeating_sources(["one", "two", "one", "two", "one", "three"]))
        session = await new_session(backend, user(), user())
        (third,) = await add(backend, session.id, user())
        assert third not in ("one", "two")
        assert await path_ids(backend, session.id) == ["one", "two", third]
        assert (await backend.verify()).problems == []
        await backend.close()

    async def test_generated_entry_ids_of_one_batch_are_distinct(self, open_backend: OpenBackend) -> None:
        backend = await open_backend(repeating_sources(["one", "one", "one"]))
        session = await backend.create_session(NewSession())
        ids = await add(backend, session.id, user(), user())
        assert len({*ids}) == 2
        assert (await backend.verify()).problems == []
        await backend.close()

    async def test_an_entry_id_that_is_taken_in_the_tree_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user(), "taken"))
        fork = await backend.fork(session.id, None, NewSession())
        refusals = Refusals(backend)
        for session_id in (session.id, fork.id):
            async with refusals.refused(errors.InvalidEntry) as caught:
                await backend.append(session_id, [user(), placed(user(), "taken")])
            assert "'taken'" in str(caught.value)

    async def test_an_entry_id_that_is_given_twice_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        async with refused(backend, errors.InvalidEntry):
            await backend.append(session.id, [placed(user(), "twice"), placed(user(), "twice")])

    async def test_the_same_entry_id_may_be_used_in_another_tree(self, backend: Backend) -> None:
        here = await new_session(backend, placed(user("here"), "same"))
        there = await new_session(backend, placed(user("there"), "same"))
        mine, theirs = await backend.get_entry(here.id, "same"), await backend.get_entry(there.id, "same")
        assert mine is not None
        assert theirs is not None
        assert (mine.fields["content"], theirs.fields["content"]) == ("here", "there")

    # -- references -------------------------------------------------------------------------------------------

    async def test_a_compaction_may_keep_from_anywhere_the_session_sees(self, backend: Backend) -> None:
        session, (first, second, third) = await talked(backend, 3)
        await backend.move(session.id, first)
        for kept in (first, third, second):
            await add(backend, session.id, compaction(kept))
        assert (await session_info(backend, session.id)).entry_count == 6

    async def test_a_compaction_may_keep_from_an_entry_of_the_same_append(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await add(backend, session.id, placed(user("held"), "held"), compaction("held"), user("next"))
        context = await backend.read_context_end(session.id, 3)
        assert [item.entry.fields.get("content") for item in context.items[1:]] == ["held", "next"]
        await backend.undo(session.id)
        assert (await session_info(backend, session.id)).leaf_id == session.leaf_id

    @inputs("where", ["nowhere", "another tree", "the fork of it", "a retracted entry"])
    async def test_a_reference_to_what_the_session_does_not_see_is_refused(self, backend: Backend, where: str) -> None:
        session = await new_session(backend, *talk(3))
        assert session.leaf_id is not None
        fork = await backend.fork(session.id, STORED, NewSession())
        elsewhere = {
            "nowhere": UNKNOWN,
            "another tree": (await new_session(backend, user())).leaf_id,
            "the fork of it": (await add(backend, fork.id, user()))[0],
            "a retracted entry": session.leaf_id,
        }
        if where == "a retracted entry":
            await backend.retract(session.id, session.leaf_id)
        kept = existing(elsewhere[where])
        batch: list[NewEntry] = [user(), compaction(kept), user()]
        caught = await refusal(backend, errors.EntryNotFound, backend.append(session.id, batch))
        assert repr(kept) in str(caught.value)

    async def test_an_append_to_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        await new_session(backend, user())
        refusals = Refusals(backend)
        for entries in ([user()], []):
            await refusals.of(errors.SessionNotFound, backend.append(UNKNOWN, entries))


class ImportContract:
    """Entries that bring their own ids, parents and times."""

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
        assert existing(await backend.undo(session.id)).to_id == "b"

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
        await raises(errors.SessionNotFound, backend.taken_entry_ids(UNKNOWN, ["a"]))

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
        async with refusals.refused(errors.EntryNotFound):
            await backend.import_session(NewSession(), [placed(user(), "a"), placed(user(), "b", UNKNOWN)], leaf="a")
        async with refusals.refused(errors.EntryNotFound):
            await backend.import_session(NewSession(), [placed(user(), "a")], leaf=UNKNOWN)
        async with refusals.refused(errors.InvalidEntry):
            await backend.import_session(NewSession(), [placed(user(), "a"), placed(user(), "a")], leaf="a")
        async with refusals.refused(errors.SessionExists):
            await backend.import_session(NewSession(key="taken"), [placed(user(), "a")], leaf="a")
        empty = await backend.import_session(NewSession(), [], leaf=None)
        assert (empty.revision, empty.leaf_id) == (0, None)

    async def test_an_import_that_names_what_the_session_does_not_see_is_refused(self, backend: Backend) -> None:
        await new_session(backend, placed(user(), "foreign"))
        session = await new_session(backend, placed(user(), "base"))
        fork = await backend.fork(session.id, STORED, NewSession())
        await backend.append(fork.id, [placed(user(), "forked")])
        refusals = Refusals(backend)
        for what, (entries, leaf) in REFUSED.items():
            with naming(what):
                async with refusals.refused(errors.EntryNotFound):
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
            await refusals.of(errors.SessionExists, backend.adopt_session(refused_one.id, "c"))

    async def test_an_imported_id_that_is_taken_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, placed(user(), "a"))
        refusals = Refusals(backend)
        for entries in ([placed(user(), "a")], [placed(user(), "b"), placed(user(), "b", "b")]):
            caught = await refusals.of(errors.InvalidEntry, backend.import_entries(session.id, entries, leaf=None))
            assert repr(entries[-1].id) in str(caught.value)

    async def test_an_import_compares_the_leaf(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        async with refused(backend, errors.LeafConflict):
            await backend.import_entries(session.id, [placed(user(), "a")], leaf="a", expected=None)
        await backend.import_entries(session.id, [placed(user(), "a")], leaf="a", expected=session.leaf_id)
        assert await path_ids(backend, session.id) == ["a"]

    async def test_an_import_into_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        await refusal(backend, errors.SessionNotFound, backend.import_entries(UNKNOWN, [placed(user(), "a")], leaf="a"))


class ConflictContract:
    """Two writers never interleave and never erase each other."""

    async def test_an_operation_on_another_leaf_than_the_stored_one_is_refused(self, backend: Backend) -> None:
        session, (older, _, leaf) = await talked(backend, 3)
        operations: dict[str, Callable[[str | None], Awaitable[object]]] = {
            "append": lambda named: backend.append(session.id, [user()], expected=named),
            "move": lambda named: backend.move(session.id, older, expected=named),
            "undo": lambda named: backend.undo(session.id, expected=named),
            "redo": lambda named: backend.redo(session.id, expected=named),
            "import": lambda named: backend.import_entries(session.id, [placed(user(), "a")], leaf="a", expected=named),
        }
        refusals = Refusals(backend)
        for (name, operate), named in product(operations.items(), (older, UNKNOWN, None)):
            with naming(name, named):
                caught = await refusals.of(errors.LeafConflict, operate(named))
                error = caught.value
                assert (error.session_id, error.expected, error.actual) == (session.id, named, leaf)

    async def test_an_entry_expected_where_there_is_none_is_a_conflict(self, backend: Backend) -> None:
        session = await new_session(backend)
        caught = await refusal(backend, errors.LeafConflict, backend.append(session.id, [user()], expected=UNKNOWN))
        assert (caught.value.expected, caught.value.actual) == (UNKNOWN, None)

    async def test_operations_on_the_stored_leaf_succeed(self, backend: Backend) -> None:
        session = await new_session(backend)
        first = await backend.append(session.id, talk(2), expected=None)
        second = await backend.append(session.id, talk(1), expected=first.leaf_id)
        moved = await backend.move(session.id, first.leaf_id, expected=second.leaf_id)
        undone = existing(await backend.undo(session.id, expected=moved.to_id))
        assert existing(await backend.redo(session.id, expected=undone.to_id)).to_id == first.leaf_id

    # -- on_conflict="branch" -----------------------------------------------------------------------------------

    async def test_a_conflicting_append_may_land_as_a_sibling_branch_and_moves_nobodys_leaf(
        self, backend: Backend
    ) -> None:
        session, (first, second) = await talked(backend, 2)
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
            async with refusals.refused(errors.EntryNotFound):
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
        lost = [result for result in results if isinstance(result, errors.LeafConflict)]
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
        assert [isinstance(result, errors.LeafConflict) for result in results] == [True, False] * 3
        assert [len(await path_ids(backend, session.id)) for session in sessions] == [1, 3] * 3

    async def test_of_several_sessions_created_with_one_key_at_once_exactly_one_is(self, backend: Backend) -> None:
        results = await outcomes(*(backend.create_session(NewSession(key="one")) for _ in range(6)))
        assert sum(isinstance(result, errors.SessionExists) for result in results) == 5
        assert (await backend.info()).sessions == 1


class ExpectationContract:
    """A write compares what its caller has seen, in the transaction that writes."""

    async def test_every_write_is_refused_where_the_revision_is_another_one(self, backend: Backend) -> None:
        assert await _failures(backend, WRITES, _is_refused_at_another_revision) == {}

    async def test_every_write_is_refused_where_the_leaf_is_another_one(self, backend: Backend) -> None:
        names = [write for write in WRITES if write not in ANSWERS_ANOTHER_LEAF]
        assert await _failures(backend, names, _is_refused_at_another_leaf) == {}

    async def test_every_write_happens_where_both_are_as_they_were_seen(self, backend: Backend) -> None:
        assert await _failures(backend, WRITES, _happens) == {}

    async def test_a_revision_of_another_session_is_not_compared(self, backend: Backend) -> None:
        session, entry, revision = await _written(backend)
        other = await new_session(backend, user())
        await add(backend, other.id, *talk(3))
        await backend.set_label(session, entry, "kept", expected=Seen(revision=revision))
        assert (await session_info(backend, session)).revision == revision + 1

    # -- what was done before ---------------------------------------------------------------------------------------

    async def test_an_idempotency_key_is_looked_up_before_anything_is_compared(self, backend: Backend) -> None:
        session, entry, revision = await _written(backend)
        seen = Seen("leaf", revision)
        keyed: list[Callable[[Expected], Awaitable[object]]] = [
            lambda seen: backend.append(session, [user()], expected=seen, idempotency_key="append"),
            lambda seen: backend.move(session, entry, expected=seen, idempotency_key="move"),
            lambda seen: backend.fork(session, STORED, NewSession(), expected=seen, idempotency_key="fork"),
            lambda seen: backend.create_task(session, "t", NewSession(), expected=seen, idempotency_key="task"),
        ]
        for write in keyed:
            await write(seen)
            async with unchanged(backend):
                await write(seen)
            info = await session_info(backend, session)
            seen = Seen(info.leaf_id, info.revision)
        async with refused(backend, errors.IdempotencyConflict):
            await backend.append(session, talk(2), expected=Seen(UNKNOWN, 0), idempotency_key="append")

    async def test_the_same_task_is_returned_without_comparing(self, backend: Backend) -> None:
        session, _, revision = await _written(backend)
        first = await backend.create_task(session, "t", NewSession(), expected=Seen(revision=revision))
        again = await backend.create_task(session, "t", NewSession(), expected=Seen(revision=revision))
        assert again == first

    # -- on_conflict="rebase" ---------------------------------------------------------------------------------------

    async def test_a_rebased_append_lands_below_whatever_is_stored_and_says_so(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        (theirs,) = await add(backend, session.id, user("theirs"))
        landed = await backend.append(session.id, talk(2), expected=session.leaf_id, on_conflict="rebase")
        assert (landed.on_branch, landed.parent_id, landed.leaf_id) == (False, theirs, landed.entry_ids[-1])
        assert await path_ids(backend, session.id) == [
            *(await path_ids(backend, session.id, theirs)),
            *landed.entry_ids,
        ]
        again = await backend.append(session.id, [user()], expected=UNKNOWN, on_conflict="rebase")
        assert again.parent_id == landed.leaf_id

    async def test_every_append_says_below_what_it_landed(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession())
        first = await backend.append(session.id, talk(2))
        second = await backend.append(session.id, [user()], idempotency_key="again")
        beside = await backend.append(session.id, [user()], expected=first.entry_ids[0], on_conflict="branch")
        nothing = await backend.append(session.id, [])
        again = await backend.append(session.id, [user()], idempotency_key="again")
        landed = [each.parent_id for each in (first, second, beside, nothing, again)]
        assert landed == [None, first.leaf_id, first.entry_ids[0], second.leaf_id, first.leaf_id]
        assert again.replayed

    async def test_of_several_appends_at_once_that_rebase_all_land_on_one_path(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        landed = await together(
            *(backend.append(session.id, talk(2), expected=session.leaf_id, on_conflict="rebase") for _ in range(8))
        )
        in_order = sorted(landed, key=lambda result: result.revision)
        ids = [entry_id for result in in_order for entry_id in result.entry_ids]
        assert await path_ids(backend, session.id) == [session.leaf_id, *ids]
        below = [session.leaf_id, *(result.leaf_id for result in in_order[:-1])]
        assert [result.parent_id for result in in_order] == below

    # -- deletion ---------------------------------------------------------------------------------------------------

    async def test_a_deletion_foretold_compares_too(self, backend: Backend) -> None:
        session, _, revision = await _written(backend)
        async with refused(backend, errors.RevisionConflict):
            await backend.plan_deletion([session], None, Seen(revision=revision + 1))
        foretold = await backend.plan_deletion([session], None, Seen(revision=revision))
        assert await backend.delete_tree(session, expected=Seen(revision=revision)) == foretold

    async def test_a_session_that_is_gone_or_of_another_scope_compares_nothing(self, backend: Backend) -> None:
        session, _, revision = await _written(backend)
        assert await backend.delete_tree(UNKNOWN, expected=Seen(UNKNOWN, 3)) == Deletion(())
        assert await backend.delete_tree(session, scope="x", expected=Seen(UNKNOWN, 3)) == Deletion(())
        await backend.delete_tree(session, expected=Seen("leaf", revision))
        assert await backend.delete_tree(session, expected=Seen("leaf", revision)) == Deletion(())

    async def test_a_deletion_at_the_same_time_as_a_save_never_takes_what_its_caller_had_not_seen(
        self, backend: Backend
    ) -> None:
        for _ in range(20):
            session = await new_session(backend, *talk(2))
            delete = partial(backend.delete_tree, session.id, expected=Seen(revision=session.revision))
            saved, deleted = await outcomes(backend.append(session.id, [user()]), delete())
            if isinstance(saved, Exception):
                assert isinstance(deleted, Deletion)
                assert await backend.get_session(session.id) is None
            else:
                assert isinstance(saved, Appended)
                assert isinstance(deleted, errors.RevisionConflict)
                assert (await session_info(backend, session.id)).leaf_id == saved.leaf_id


class IdempotencyContract:
    """A retried operation happens once."""

    async def test_the_retry_of_an_append_returns_the_first_result(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        first = await backend.append(session.id, talk(2), expected=session.leaf_id, idempotency_key="k")
        async with unchanged(backend):
            again = await backend.append(session.id, talk(2), expected=session.leaf_id, idempotency_key="k")
        assert (first.replayed, again) == (False, replace(first, replayed=True))

    async def test_the_retry_of_an_append_is_known_however_far_the_session_has_come_since(
        self, backend: Backend
    ) -> None:
        session = await new_session(backend, user())
        first = await backend.append(session.id, talk(2), expected=session.leaf_id, idempotency_key="k")
        await add(backend, session.id, *talk(3))
        await backend.move(session.id, None)
        async with unchanged(backend):
            again = await backend.append(session.id, talk(2), expected=session.leaf_id, idempotency_key="k")
        assert (again.entry_ids, again.leaf_id, again.revision) == (first.entry_ids, first.leaf_id, first.revision)

    async def test_ids_and_times_and_the_named_leaf_are_no_content(self, backend: Backend) -> None:
        session = await new_session(backend)
        first = await backend.append(session.id, [placed(user(), "a", at_us=1)], idempotency_key="k")
        async with unchanged(backend):
            again = await backend.append(
                session.id, [placed(user(), "b", at_us=2)], expected=UNKNOWN, on_conflict="branch", idempotency_key="k"
            )
        assert again == replace(first, replayed=True)

    async def test_the_retry_of_a_branch_says_again_that_it_was_one(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first = await backend.append(session.id, talk(2), expected=None, on_conflict="branch", idempotency_key="k")
        async with unchanged(backend):
            again = await backend.append(session.id, talk(2), expected=None, on_conflict="branch", idempotency_key="k")
        assert again == replace(first, replayed=True)
        assert again.on_branch

    async def test_the_retry_of_an_empty_append_returns_the_first_result(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        first = await backend.append(session.id, [], expected=session.leaf_id, idempotency_key="k")
        await add(backend, session.id, user())
        async with unchanged(backend):
            again = await backend.append(session.id, [], expected=session.leaf_id, idempotency_key="k")
        assert again == replace(first, replayed=True)

    async def test_other_content_under_the_same_key_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend)
        leaf = existing((await backend.append(session.id, [user("a"), user("b")], idempotency_key="k")).leaf_id)
        others = [
            [user("a")],
            [user("a"), user("c")],
            [user("b"), user("a")],
            [user("a"), user("b"), user("c")],
            [user("a"), replace(user("b"), source="retry")],
            [user("a"), compaction(leaf)],
            [],
        ]
        refusals = Refusals(backend)
        for entries in others:
            async with refusals.refused(errors.IdempotencyConflict) as caught:
                await backend.append(session.id, entries, idempotency_key="k")
            assert (caught.value.session_id, caught.value.key) == (session.id, "k")

    async def test_another_operation_under_the_same_key_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await backend.append(session.id, [user()], idempotency_key="append")
        await backend.move(session.id, None, idempotency_key="move")
        await backend.fork(session.id, None, NewSession(), idempotency_key="fork")
        await backend.create_task(session.id, "t", NewSession(), idempotency_key="task")
        async with unchanged(backend):
            for key in ("append", "move", "fork", "task"):
                if key != "append":
                    await raises(errors.IdempotencyConflict, backend.append(session.id, [user()], idempotency_key=key))
                if key != "move":
                    await raises(errors.IdempotencyConflict, backend.move(session.id, None, idempotency_key=key))
                if key != "fork":
                    with pytest.raises(errors.IdempotencyConflict):
                        await backend.fork(session.id, None, NewSession(), idempotency_key=key)
                if key != "task":
                    with pytest.raises(errors.IdempotencyConflict):
                        await backend.create_task(session.id, "t", NewSession(), idempotency_key=key)

    async def test_a_task_is_told_from_a_fork_that_is_described_alike(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        await backend.fork(session.id, STORED, NewSession(), idempotency_key="k")
        async with refused(backend, errors.IdempotencyConflict):
            await backend.create_task(session.id, "stored leaf", NewSession(), idempotency_key="k")

    async def test_a_key_belongs_to_its_session(self, backend: Backend) -> None:
        one, two = await new_session(backend), await new_session(backend)
        fork = await backend.fork(one.id, STORED, NewSession())
        for session in (one, two, fork):
            appended = await backend.append(session.id, [user(session.id)], idempotency_key="k")
            assert not appended.replayed
            assert len(await path_ids(backend, session.id)) == 1

    async def test_a_key_may_be_any_text(self, backend: Backend) -> None:
        session = await new_session(backend)
        for key in ("", " ", "Ключ 🔑", "k" * 1000):
            first = await backend.append(session.id, [user(key)], idempotency_key=key)
            again = await backend.append(session.id, [user(key)], idempotency_key=key)
            assert (first.replayed, again.replayed) == (False, True)

    async def test_an_operation_that_failed_does_not_use_up_its_key(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        await raises(errors.EntryNotFound, backend.append(session.id, [compaction(UNKNOWN)], idempotency_key="k"))
        appended = await backend.append(session.id, [user("other")], idempotency_key="k")
        assert not appended.replayed

    async def test_of_several_retries_at_once_one_is_the_first(self, backend: Backend) -> None:
        session = await new_session(backend)
        results = await together(*(backend.append(session.id, talk(2), idempotency_key="k") for _ in range(6)))
        assert sorted(result.replayed for result in results) == [False] + [True] * 5
        assert {result.entry_ids for result in results} == {tuple(await path_ids(backend, session.id))}

    # -- moves --------------------------------------------------------------------------------------------------

    async def test_the_retry_of_a_move_does_not_move_again(self, backend: Backend) -> None:
        session, (older, leaf) = await talked(backend, 2)
        first = await backend.move(session.id, older, expected=leaf, idempotency_key="k")
        await backend.move(session.id, leaf)
        async with unchanged(backend):
            again = await backend.move(session.id, older, expected=leaf, idempotency_key="k")
        assert again == replace(first, replayed=True)

    async def test_the_retry_of_a_move_that_was_there_already_does_not_move_either(self, backend: Backend) -> None:
        session, (older, leaf) = await talked(backend, 2)
        first = await backend.move(session.id, leaf, idempotency_key="k")
        await backend.move(session.id, older)
        async with unchanged(backend):
            again = await backend.move(session.id, leaf, idempotency_key="k")
        assert again == replace(first, replayed=True)

    async def test_a_move_elsewhere_under_the_same_key_is_refused(self, backend: Backend) -> None:
        session, (older, leaf) = await talked(backend, 2)
        await backend.move(session.id, older, idempotency_key="k")
        refusals = Refusals(backend)
        for to in (leaf, None):
            await refusals.of(errors.IdempotencyConflict, backend.move(session.id, to, idempotency_key="k"))

    # -- forks and tasks ------------------------------------------------------------------------------------------

    async def test_the_retry_of_a_fork_returns_the_same_fork_as_it_is_now(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        new = NewSession(key="forked", title="x", metadata_text='{"a":1}')
        first = await backend.fork(session.id, STORED, new, idempotency_key="k")
        await add(backend, session.id, *talk(1))
        await add(backend, first.id, *talk(2))
        async with unchanged(backend):
            again = await backend.fork(session.id, STORED, new, idempotency_key="k")
        assert again == await session_info(backend, first.id)
        assert again.revision == 1

    async def test_another_fork_under_the_same_key_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await backend.fork(session.id, session.leaf_id, NewSession(title="x"), idempotency_key="k")
        others = [
            (None, NewSession(title="x")),
            (session.leaf_id, NewSession()),
            (session.leaf_id, NewSession(key="y")),
        ]
        refusals = Refusals(backend)
        for at, new in others:
            await refusals.of(errors.IdempotencyConflict, backend.fork(session.id, at, new, idempotency_key="k"))

    async def test_the_retry_of_a_task_returns_the_same_child(self, backend: Backend) -> None:
        session = await new_session(backend)
        first = await backend.create_task(session.id, "t", NewSession(title="x"), idempotency_key="k")
        async with unchanged(backend):
            again = await backend.create_task(session.id, "t", NewSession(title="x"), idempotency_key="k")
        assert again.id == first.id
        refusals = Refusals(backend)
        for task_id, title in (("u", "x"), ("t", "y")):
            async with refusals.refused(errors.IdempotencyConflict):
                await backend.create_task(session.id, task_id, NewSession(title=title), idempotency_key="k")

    @inputs("operation", ["fork", "task"])
    async def test_the_retry_for_a_session_that_was_deleted_since_says_so(
        self, backend: Backend, operation: str
    ) -> None:
        session = await new_session(backend, *talk(2))

        async def make() -> str:
            if operation == "fork":
                return (await backend.fork(session.id, STORED, NewSession(), idempotency_key="k")).id
            return (await backend.create_task(session.id, "t", NewSession(), idempotency_key="k")).id

        made = await make()
        await backend.delete_tree(made)
        caught = await refusal(backend, errors.SessionNotFound, make())
        assert made in str(caught.value)
        assert "deleted" in str(caught.value)

    async def test_keys_go_with_their_session(self, backend: Backend) -> None:
        await backend.create_session(NewSession(id="again"))
        await backend.append("again", [user("one")], idempotency_key="k")
        await backend.delete_tree("again")
        await backend.create_session(NewSession(id="again"))
        appended = await backend.append("again", [user("two")], idempotency_key="k")
        assert not appended.replayed
