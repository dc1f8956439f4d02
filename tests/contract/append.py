"""The contract: appending entries, and how they are stored."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, InvalidEntry, LeafConflict, SessionNotFound
from tests.checks import Refusals, refused, unchanged
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
    tree_ids,
    user,
)
from tests.sources import START_US, OpenBackend, repeating_sources


class AppendContract:
    """Appending."""

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

    @pytest.mark.parametrize(
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

    @pytest.mark.parametrize("data", [None, True, 0, "text", [1, None], {"a": 1}])
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

    @pytest.mark.parametrize("name", ["half \ud800", "a\0b", "日本 🚨"])
    async def test_names_of_models_and_providers_may_be_any_text(self, backend: Backend, name: str) -> None:
        call: JsonObject = {"input": 5, "totalTokens": 5, "provider": name, "model": name, "callId": name}
        session = await new_session(backend, assistant(tokens=1, provider=name, model=name))
        assert session.leaf_id is not None
        await add(
            backend,
            session.id,
            NewEntry.compaction("x", first_kept_entry_id=session.leaf_id, tokens_before=1, calls=[call]),
        )
        assert (await session_info(backend, session.id)).spent_tokens == 6
        assert (await backend.info()).ledger_rows == 2

    async def test_an_empty_append_changes_nothing(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        async with unchanged(backend):
            appended = await backend.append(session.id, [])
            named = await backend.append(session.id, [], expected=session.leaf_id, on_conflict="branch")
        assert (appended.entry_ids, appended.leaf_id, appended.revision) == ((), session.leaf_id, session.revision)
        assert (named.entry_ids, named.leaf_id, named.on_branch) == ((), session.leaf_id, False)

    async def test_an_empty_append_still_compares_the_leaf(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        async with refused(backend, LeafConflict):
            await backend.append(session.id, [], expected=None)

    async def test_an_append_before_the_first_entry_makes_another_root(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        await backend.move(session.id, None)
        (root,) = await add(backend, session.id, user("again"))
        (entry,) = await path_of(backend, session.id)
        assert (entry.id, entry.parent_id, entry.depth) == (root, None, 0)
        assert len(await tree_ids(backend, session.id)) == 3

    async def test_an_append_below_an_older_entry_makes_a_sibling(self, backend: Backend) -> None:
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
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
            async with refusals.refused(InvalidEntry) as caught:
                await backend.append(session_id, [user(), placed(user(), "taken")])
            assert "'taken'" in str(caught.value)

    async def test_an_entry_id_that_is_given_twice_is_refused(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        async with refused(backend, InvalidEntry):
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
        session = await new_session(backend)
        first, second, third = await add(backend, session.id, *talk(3))
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

    @pytest.mark.parametrize("where", ["nowhere", "another tree", "the fork of it", "a retracted entry"])
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
        kept = elsewhere[where]
        assert kept is not None
        batch: list[NewEntry] = [user(), compaction(kept), user()]
        async with refused(backend, EntryNotFound) as caught:
            await backend.append(session.id, batch)
        assert repr(kept) in str(caught.value)

    async def test_an_append_to_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        await new_session(backend, user())
        refusals = Refusals(backend)
        for entries in ([user()], []):
            async with refusals.refused(SessionNotFound):
                await backend.append(UNKNOWN, entries)
