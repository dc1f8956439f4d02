"""The contract: sessions: made, changed, listed, and an id that is used again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from itertools import product, starmap

import pytest
from msgspec.structs import replace

from flue_py.core.entries import NewEntry, PathSettings, settings_on
from flue_py.core.json import encode_json
from flue_py.core.ledger import Amounts, LedgerQuery, NewBudget
from flue_py.core.operations import AppendEntries
from flue_py.core.sessions import (
    ANY_SESSION,
    ORDERS,
    SLOT_BITS,
    STORED,
    NewSession,
    Ordering,
    Scalar,
    SessionFilter,
    SessionInfo,
    SessionKind,
    SessionOrder,
    SessionRef,
    sort_value,
)
from flue_py.core.usage import NO_USAGE, PaidCall, UsageTotals
from flue_py.db.backend import Backend
from flue_py.db.sqlite.runner import open_memory
from flue_py.errors import EntryNotFound, InvalidArgument, SessionExists, SessionNotFound
from tests.checks import naming, raises, refusal, unchanged
from tests.samples import (
    UNKNOWN,
    add,
    assistant,
    compaction,
    new_session,
    path_ids,
    path_of,
    pictured,
    placed,
    session_info,
    store_snapshot,
    talk,
    user,
)
from tests.sources import START_US, OpenBackend, counted_sources, repeating_sources
from tests.tables import inputs
from tests.values import existing


async def listed(backend: Backend, limit: int, scope: str | None = None) -> list[SessionInfo]:
    """Return all pages of the listing, one after the other."""
    sessions: list[SessionInfo] = []
    cursor = None
    while True:
        page = await backend.list_sessions(scope=scope, kind=None, limit=limit, cursor=cursor)
        assert len(page.sessions) <= limit
        sessions += page.sessions
        cursor = page.next_cursor
        if cursor is None:
            return sessions


def level(name: object) -> NewEntry:
    return NewEntry.custom("thinking_level_change", {"thinkingLevel": name})


def model(provider: str, name: str) -> NewEntry:
    return NewEntry.custom("model_change", {"provider": provider, "modelId": name})


def answer(provider: str, name: str) -> NewEntry:
    said = {"role": "assistant", "content": [], "provider": provider, "model": name}
    return NewEntry.message(said)


async def newest_of(backend: Backend, session: SessionInfo) -> int:
    """Return the time of a session's newest entry on its path."""
    return max(entry.created_us for entry in await path_of(backend, session.id))


TITLES = ("b", "B", "ä", "a", "", None, "日本", "z" * 300, "z" * 300 + "a", "%", "a_c", "🚨", "\uffff")


async def make_sessions(backend: Backend) -> None:
    """Make sessions that differ, and some that are alike, in everything that is listed."""
    for number, title in enumerate(TITLES):
        scope, cwd = ("", "other")[number % 2], (None, "/work", "/home")[number % 3]
        session = await backend.create_session(
            NewSession(title=title, scope=scope, cwd=cwd, key=f"key {number}" if number % 4 else None)
        )
        await add(backend, session.id, *talk(number % 5), user(f"Question {number}"))
        if number % 3 == 0:
            await backend.update_session(session.id, auto_title=f"About {'XYZ'[number % 2]} {number}")
        if number % 4 == 0:
            await add(backend, session.id, assistant(tokens=1000 + number % 3, dollars=number / 4))
            await backend.update_session(session.id, completed_us=number)
    source = await new_session(backend, *talk(2))
    await backend.fork(source.id, source.leaf_id, NewSession(title="a", created_us=START_US - 5))
    await backend.create_task(source.id, "t", NewSession(created_us=START_US + 10**9))


WHERES = (
    SessionFilter(title="b"),
    SessionFilter(title="ABOUT x"),
    SessionFilter(title="question 1"),
    SessionFilter(title="%"),
    SessionFilter(title="Ä"),
    SessionFilter(title=""),
    SessionFilter(title="nowhere"),
    SessionFilter(key="key 5"),
    SessionFilter(key="no such key"),
    SessionFilter(cwd="/work"),
    SessionFilter(completed=True),
    SessionFilter(completed=False),
    SessionFilter(title="a", cwd="/work", completed=False),
)


async def made_in_memory() -> Backend:
    """Return a store in memory with the same sessions."""
    backend = open_memory(counted_sources())
    await make_sessions(backend)
    return backend


async def every_page(
    backend: Backend, ordering: Ordering, where: SessionFilter = ANY_SESSION, limit: int = 100
) -> list[SessionInfo]:
    """Return all pages of a listing, one after the other."""
    found: list[SessionInfo] = []
    cursor = None
    while True:
        page = await backend.list_sessions(
            scope=None, kind=None, limit=limit, cursor=cursor, where=where, ordering=ordering
        )
        assert len(page.sessions) <= limit
        found += page.sessions
        cursor = page.next_cursor
        if cursor is None:
            return found
        assert len(page.sessions) == limit


Use = Callable[[Backend, str, str], Awaitable[object]]


async def first_of(backend: Backend, session_id: str, entry: str) -> object:
    """Watch a session until something is told of it (the entry is none of its business)."""
    async with aclosing(backend.notifications(session_id)) as told:
        await anext(told)
        return await backend.changes(session_id, 0, 10)


USES: dict[str, Use] = {
    "get": lambda backend, session, entry: backend.get_session(session),
    "title": lambda backend, session, entry: backend.update_session(session, title="x"),
    "metadata": lambda backend, session, entry: backend.update_session(session, metadata_text='{"a":1}'),
    "append": lambda backend, session, entry: backend.append(session, [user()]),
    "append nothing": lambda backend, session, entry: backend.append(session, []),
    "append beside": lambda backend, session, entry: backend.append(
        session, [user()], expected=None, on_conflict="branch"
    ),
    "append once": lambda backend, session, entry: backend.append(session, [user()], idempotency_key="k"),
    "recall": lambda backend, session, entry: backend.recall_append(session, "k"),
    "recall a batch": lambda backend, session, entry: backend.recall_atomic([AppendEntries(session, [user()])], "k"),
    "import": lambda backend, session, entry: backend.import_entries(session, [placed(user(), "i")], leaf="i"),
    "move": lambda backend, session, entry: backend.move(session, None),
    "retract": lambda backend, session, entry: backend.retract(session, entry),
    "undo": lambda backend, session, entry: backend.undo(session),
    "redo": lambda backend, session, entry: backend.redo(session),
    "go back": lambda backend, session, entry: backend.go_back(session, 0),
    "fork": lambda backend, session, entry: backend.fork(session, None, NewSession()),
    "task": lambda backend, session, entry: backend.create_task(session, "t", NewSession()),
    "link": lambda backend, session, entry: backend.link_task(session, "child", "t"),
    "end": lambda backend, session, entry: backend.end_task(session, "done"),
    "links": lambda backend, session, entry: backend.task_links(session),
    "parents": lambda backend, session, entry: backend.task_parents(session),
    "call": lambda backend, session, entry: backend.record_call(session, PaidCall(usage=NO_USAGE)),
    "costs": lambda backend, session, entry: backend.read_entry_costs(session),
    "path": lambda backend, session, entry: backend.read_path(session),
    "path since": lambda backend, session, entry: backend.read_path_since(session, None),
    "context": lambda backend, session, entry: backend.read_context(session),
    "messages": lambda backend, session, entry: backend.read_messages(session),
    "messages at a leaf": lambda backend, session, entry: backend.read_messages(session, leaf=entry),
    "usage": lambda backend, session, entry: backend.read_usage(session, None),
    "usage since": lambda backend, session, entry: backend.read_usage(session, entry),
    "settings": lambda backend, session, entry: backend.read_settings(session),
    "turns": lambda backend, session, entry: backend.read_turns(session),
    "tree": lambda backend, session, entry: backend.read_tree(session),
    "entry": lambda backend, session, entry: backend.get_entry(session, entry),
    "match": lambda backend, session, entry: backend.match_entry_ids(session, ""),
    "taken": lambda backend, session, entry: backend.taken_entry_ids(session, [entry]),
    "ancestor": lambda backend, session, entry: backend.is_ancestor(session, entry, entry),
    "common": lambda backend, session, entry: backend.common_ancestor(session, str(session)),
    "common with": lambda backend, session, entry: backend.common_ancestor(str(session), session),
    "changes": lambda backend, session, entry: backend.changes(session, 0, 10),
    "watch": first_of,
    "log": lambda backend, session, entry: backend.read_log(session, before=None, limit=10),
    "label": lambda backend, session, entry: backend.set_label(session, entry, "x"),
    "pin": lambda backend, session, entry: backend.set_pin(session, entry, True),
    "marks": lambda backend, session, entry: backend.read_marks(session),
    "budget": lambda backend, session, entry: backend.set_budget(NewBudget("session", "tokens", 5, session)),
    "budgets": lambda backend, session, entry: backend.covering_budgets(session),
    "reserve": lambda backend, session, entry: backend.reserve(session, Amounts(tokens=1), 1_000_000),
}


class SessionContract:
    """Sessions, their listing, and what may be changed about them."""

    async def test_a_created_session_is_an_empty_root_at_revision_zero(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession())
        assert (session.kind, session.leaf_id, session.revision) == ("root", None, 0)
        assert (session.key, session.title, session.scope, session.metadata_text) == (None, None, "", "{}")
        assert (session.forked_from_session, session.forked_from_entry) == (None, None)
        assert (session.entry_count, session.message_count, session.first_message) == (0, 0, None)
        assert (session.spent_tokens, session.spent_picodollars) == (0, 0)
        assert (session.completed_us, session.trashed_us) == (None, None)
        assert session.created_us >= START_US
        assert await backend.changes(session.id, 0, 10) == []

    async def test_a_session_keeps_what_it_was_created_with(self, backend: Backend) -> None:
        new = NewSession(
            id="chosen",
            key="ключ/日本",
            title='Red "build" 🚨',
            scope="user-7",
            metadata_text='{"b":1,"a":{"z":null,"y":[1.5,"é"]}}',
            cwd="/srv/app",
            config_path="/srv/app/flue.toml",
            created_us=1_234_567,
        )
        session = await backend.create_session(new)
        assert session == await backend.get_session("chosen")
        assert (session.id, session.key, session.title, session.scope) == (new.id, new.key, new.title, new.scope)
        assert session.metadata_text == new.metadata_text
        assert (session.cwd, session.config_path, session.created_us) == (new.cwd, new.config_path, new.created_us)

    async def test_the_bytes_of_a_session_are_those_of_the_payloads_that_it_added(self, backend: Backend) -> None:
        session_id = (await new_session(backend)).id
        await new_session(backend)
        sizes = []
        for entry in (user("äöü"), user("words " * 50_000), pictured(bytes(range(256)) * 200)):
            await add(backend, session_id, entry)
            sizes.append((await backend.stored_bytes())[session_id])
        assert sizes[0] == len(user("äöü").payload.encode())
        assert sizes[0] < sizes[1] < 300_000
        assert sizes[2] > sizes[1] + 256
        assert [*await backend.stored_bytes()] == [session_id]

    async def test_session_ids_are_made_where_none_is_given(self, backend: Backend) -> None:
        made = [(await backend.create_session(NewSession())).id for _ in range(3)]
        assert len({*made}) == 3
        assert all(made)

    async def test_a_generated_session_id_that_is_taken_is_asked_for_again(self, open_backend: OpenBackend) -> None:
        backend = await open_backend(repeating_sources(session_ids=["one", "one", "one", "two"]))
        first = await backend.create_session(NewSession())
        second = await backend.create_session(NewSession())
        assert (first.id, second.id) == ("one", "two")
        assert (await backend.verify()).problems == []
        await backend.close()

    async def test_a_taken_session_id_is_refused(self, backend: Backend) -> None:
        await backend.create_session(NewSession(id="taken"))
        caught = await refusal(backend, SessionExists, backend.create_session(NewSession(id="taken", key="other")))
        assert "'taken'" in str(caught.value)

    async def test_a_key_is_unique_within_its_scope(self, backend: Backend) -> None:
        here = await backend.create_session(NewSession(key="triage", scope="a"))
        caught = await refusal(backend, SessionExists, backend.create_session(NewSession(key="triage", scope="a")))
        assert "'triage'" in str(caught.value)
        there = await backend.create_session(NewSession(key="triage", scope="b"))
        assert await backend.get_session_by_key("triage", "a") == here
        assert await backend.get_session_by_key("triage", "b") == there

    async def test_a_key_may_be_the_empty_string(self, backend: Backend) -> None:
        await backend.create_session(NewSession(key=None))
        empty = await backend.create_session(NewSession(key=""))
        await backend.create_session(NewSession(key=None))
        assert await backend.get_session_by_key("", "") == empty
        await refusal(backend, SessionExists, backend.create_session(NewSession(key="")))

    async def test_keys_that_differ_in_case_or_normal_form_are_different(self, backend: Backend) -> None:
        keys = ["triage", "Triage", "caf\u00e9", "cafe\u0301", " triage", "triage "]
        made = [await backend.create_session(NewSession(key=key)) for key in keys]
        assert [await backend.get_session_by_key(key, "") for key in keys] == made

    async def test_a_session_that_is_not_there_is_none(self, backend: Backend) -> None:
        await backend.create_session(NewSession(key="a", scope="x"))
        assert await backend.get_session(UNKNOWN) is None
        assert await backend.get_session("") is None
        assert await backend.get_session_by_key("b", "x") is None
        assert await backend.get_session_by_key("a", "") is None

    async def test_a_session_of_another_scope_is_none(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession(scope="a"))
        assert await backend.get_session(session.id, "a") == session
        assert await backend.get_session(session.id, None) == session
        assert await backend.get_session(session.id, "") is None
        assert await backend.get_session(session.id, "A") is None

    # -- listing ----------------------------------------------------------------------------------------------

    async def test_the_most_recently_changed_session_is_listed_first(self, backend: Backend) -> None:
        made = [await new_session(backend) for _ in range(3)]
        await backend.append(made[0].id, [user()])
        assert [session.id for session in await listed(backend, 10)] == [made[0].id, made[2].id, made[1].id]

    async def test_sessions_changed_at_the_same_time_are_listed_newest_first(self, open_backend: OpenBackend) -> None:
        backend = await open_backend(counted_sources(step_us=0))
        made = [(await new_session(backend)).id for _ in range(5)]
        await backend.append(made[1], [user()])
        for limit in (1, 2, 5, 6):
            assert [session.id for session in await listed(backend, limit)] == made[::-1]
        await backend.close()

    async def test_every_session_is_on_exactly_one_page_also_when_the_clock_runs_backwards(
        self, open_backend: OpenBackend
    ) -> None:
        backend = await open_backend(counted_sources(step_us=-7))
        made = [(await new_session(backend, user())).id for _ in range(7)]
        for limit in (1, 3, 7, 8):
            assert sorted(session.id for session in await listed(backend, limit)) == sorted(made)
        await backend.close()

    async def test_the_last_page_has_no_cursor(self, backend: Backend) -> None:
        empty = await backend.list_sessions(scope=None, kind=None, limit=3, cursor=None)
        assert (empty.sessions, empty.next_cursor) == ((), None)
        for _ in range(3):
            await new_session(backend)
        full = await backend.list_sessions(scope=None, kind=None, limit=3, cursor=None)
        assert (len(full.sessions), full.next_cursor) == (3, None)
        part = await backend.list_sessions(scope=None, kind=None, limit=2, cursor=None)
        assert len(part.sessions) == 2
        assert part.next_cursor is not None

    async def test_a_listing_tells_what_get_session_tells(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(4), key="a", scope="x")
        assert await listed(backend, 10) == [session]
        assert session.entry_count == 4

    async def test_sessions_are_listed_by_scope_and_by_kind(self, backend: Backend) -> None:
        root = await new_session(backend, user(), scope="a")
        other = await new_session(backend, scope="b")
        fork = await backend.fork(root.id, root.leaf_id, NewSession())
        task = await backend.create_task(root.id, "t", NewSession())
        assert {session.id for session in await listed(backend, 2, scope="a")} == {root.id, fork.id, task.id}
        assert [session.id for session in await listed(backend, 2, scope="b")] == [other.id]
        assert await listed(backend, 2, scope="c") == []
        kinds: dict[SessionKind, set[str]] = {"root": {root.id, other.id}, "fork": {fork.id}, "task": {task.id}}
        for kind, wanted in kinds.items():
            page = await backend.list_sessions(scope=None, kind=kind, limit=9, cursor=None)
            assert {session.id for session in page.sessions} == wanted
        both = await backend.list_sessions(scope="b", kind="root", limit=9, cursor=None)
        assert [session.id for session in both.sessions] == [other.id]

    async def test_what_has_been_listed_stays_where_it_was_while_others_change(self, backend: Backend) -> None:
        made = [(await new_session(backend)).id for _ in range(6)]
        first = await backend.list_sessions(scope=None, kind=None, limit=3, cursor=None)
        await backend.append(made[0], [user()])
        second = await backend.list_sessions(scope=None, kind=None, limit=9, cursor=first.next_cursor)
        seen = [session.id for session in first.sessions + second.sessions]
        assert seen == [made[5], made[4], made[3], made[2], made[1]]

    @inputs("cursor", ["", "nonsense", "é", "AAAA", "-1", "bnVsbA==", "W10=", "\ud800", "1.2"])
    async def test_a_malformed_cursor_is_refused(self, backend: Backend, cursor: str) -> None:
        await new_session(backend)
        await raises(InvalidArgument, backend.list_sessions(scope=None, kind=None, limit=3, cursor=cursor))

    async def test_session_ids_are_matched_by_prefix_in_order(self, backend: Backend) -> None:
        for session_id in ("ab2", "ab1", "AB3", "b", "a%c", "a_d", "aé"):
            await backend.create_session(NewSession(id=session_id))
        assert await backend.match_session_ids("ab", 9) == ["ab1", "ab2"]
        assert await backend.match_session_ids("a", 9) == ["a%c", "a_d", "ab1", "ab2", "aé"]
        assert await backend.match_session_ids("a", 2) == ["a%c", "a_d"]
        assert await backend.match_session_ids("a") == ["a%c", "a_d"]
        assert await backend.match_session_ids("a%", 9) == ["a%c"]
        assert await backend.match_session_ids("a_", 9) == ["a_d"]
        assert await backend.match_session_ids("ab1", 9) == ["ab1"]
        assert await backend.match_session_ids("ab11", 9) == []
        assert len(await backend.match_session_ids("", 9)) == 7

    # -- updating ---------------------------------------------------------------------------------------------

    async def test_an_update_changes_what_is_named_and_leaves_the_rest(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2), key="k")
        titled = await backend.update_session(session.id, title="Red build")
        described = await backend.update_session(session.id, metadata_text='{"x":1}')
        completed = await backend.update_session(session.id, completed_us=77)
        assert (titled.title, titled.metadata_text, titled.completed_us) == ("Red build", "{}", None)
        assert (described.title, described.metadata_text, described.completed_us) == ("Red build", '{"x":1}', None)
        assert (completed.title, completed.metadata_text, completed.completed_us) == ("Red build", '{"x":1}', 77)
        cleared = await backend.update_session(session.id, title=None, completed_us=None)
        assert (cleared.title, cleared.metadata_text, cleared.completed_us) == (None, '{"x":1}', None)
        assert cleared == await backend.get_session(session.id)
        assert (cleared.key, cleared.leaf_id, cleared.entry_count) == ("k", session.leaf_id, 2)

    async def test_an_update_counts_one_revision(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        updated = await backend.update_session(session.id, title="a", metadata_text="{}", completed_us=1)
        assert updated.revision == session.revision + 1
        assert updated.updated_us > session.updated_us
        (change,) = await backend.changes(session.id, session.revision, 10)
        assert (change.revision, change.reason, change.entries) == (updated.revision, None, ())
        assert (change.from_id, change.to_id) == (None, None)

    async def test_an_update_of_a_session_that_is_not_there_is_refused(self, backend: Backend) -> None:
        caught = await refusal(backend, SessionNotFound, backend.update_session(UNKNOWN, title="x"))
        assert UNKNOWN in str(caught.value)

    # -- what the row counts ----------------------------------------------------------------------------------

    async def test_a_session_counts_what_it_added(self, backend: Backend) -> None:
        session = await new_session(backend, user("\n\n  first line \nsecond"), *talk(3))
        assert (session.entry_count, session.message_count, session.first_message) == (4, 4, "first line")
        fork = await backend.fork(session.id, session.leaf_id, NewSession())
        assert (fork.entry_count, fork.message_count) == (0, 0)
        await backend.append(fork.id, talk(2))
        assert (await session_info(backend, fork.id)).entry_count == 2
        assert (await session_info(backend, session.id)).entry_count == 4


class SettingsContract:
    """The model and the thinking level that a path has."""

    async def test_the_last_settings_of_the_path_are_in_force_and_a_branch_has_its_own(self, backend: Backend) -> None:
        session = await new_session(backend)
        assert await backend.read_settings(session.id) == PathSettings()
        ids = await add(
            backend,
            session.id,
            level("low"),
            user(),
            model("openai", "one"),
            answer("anthropic", "two"),
            level("high"),
            *talk(1),
            model("openai", "three"),
            user(),
        )
        told = [await backend.read_settings(session.id, leaf=each) for each in ids]
        assert told == [
            PathSettings("low"),
            PathSettings("low"),
            PathSettings("low", "openai", "one"),
            PathSettings("low", "anthropic", "two"),
            *[PathSettings("high", "anthropic", "two")] * 2,
            *[PathSettings("high", "openai", "three")] * 2,
        ]
        assert await backend.read_settings(session.id) == told[-1]
        assert await backend.read_settings(session.id, leaf=None) == PathSettings()
        await backend.move(session.id, ids[3])
        assert await backend.read_settings(session.id) == told[3]
        # Over forks of forks, and past a compaction.
        fork = await backend.fork(session.id, ids[3], NewSession())
        (own,) = await add(backend, fork.id, user())
        deeper = await backend.fork(fork.id, STORED, NewSession())
        await add(backend, deeper.id, compaction(own), user(), level("medium"))
        assert await backend.read_settings(fork.id) == told[3]
        assert await backend.read_settings(deeper.id) == PathSettings("medium", "anthropic", "two")
        assert settings_on(await path_of(backend, deeper.id)) == await backend.read_settings(deeper.id)

    async def test_what_names_nothing_leaves_the_setting_unknown(self, backend: Backend) -> None:
        session = await new_session(backend, level("high"), model("p", "m"))
        odd = [level(""), level(7), level(None), NewEntry.custom("thinking_level_change", "high")]
        for entry in odd:
            await add(backend, session.id, entry)
            assert await backend.read_settings(session.id) == PathSettings(None, "p", "m")
        await add(backend, session.id, NewEntry.message({"role": "assistant", "content": []}))
        assert await backend.read_settings(session.id) == PathSettings()

    async def test_settings_at_what_the_session_does_not_see_are_refused(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        await refusal(backend, EntryNotFound, backend.read_settings(session.id, leaf=UNKNOWN))


class ActivityContract:
    """A session was last active at the time of its newest entry, or when it was made."""

    async def test_a_session_without_entries_was_last_active_when_it_was_made(self, backend: Backend) -> None:
        session = await new_session(backend)
        assert session.active_us == session.created_us
        old = await backend.create_session(NewSession(created_us=5))
        assert (old.created_us, old.active_us) == (5, 5)
        fork = await backend.fork((await new_session(backend, *talk(2))).id, None, NewSession())
        assert fork.active_us == fork.created_us

    async def test_an_append_counts_and_what_adds_no_entry_does_not(self, backend: Backend) -> None:
        session = await new_session(backend, *talk(2))
        active = await newest_of(backend, session)
        assert session.active_us == active > session.created_us
        await backend.update_session(session.id, title="later")
        await backend.move(session.id, None)
        await backend.record_call(session.id, PaidCall(UsageTotals(total_tokens=3), call_id="c"))
        later = await session_info(backend, session.id)
        assert (later.active_us, later.updated_us > active) == (active, True)
        await add(backend, session.id, user())
        assert (await session_info(backend, session.id)).active_us == await newest_of(backend, session) > active

    async def test_a_retracted_entry_was_activity_all_the_same(self, backend: Backend) -> None:
        session = await new_session(backend)
        (failed,) = await add(backend, session.id, user())
        active = (await session_info(backend, session.id)).active_us
        assert active > session.created_us
        assert await backend.retract(session.id, failed)
        assert (await session_info(backend, session.id)).active_us == active
        await backend.import_entries(session.id, [placed(user(), "old", at_us=5)], leaf="old")
        assert (await session_info(backend, session.id)).active_us == active

    async def test_an_imported_session_was_last_active_when_its_newest_entry_says(self, backend: Backend) -> None:
        entries = [placed(user(), "a", at_us=70), placed(user(), "b", "a", 90), placed(user(), "c", "b", 80)]
        session = await backend.import_session(NewSession(), entries, leaf="c")
        assert (session.active_us, session.created_us > 90) == (90, True)
        await backend.import_entries(session.id, [placed(user(), "d", "c", 60)], leaf="d")
        assert (await session_info(backend, session.id)).active_us == 90
        await backend.import_entries(session.id, [placed(user(), "e", "d", 95)], leaf="e")
        assert (await session_info(backend, session.id)).active_us == 95
        await add(backend, session.id, user())
        assert (await session_info(backend, session.id)).active_us == await newest_of(backend, session) > 95

    async def test_an_import_of_nothing_is_no_activity_and_one_from_before_1970_is(self, backend: Backend) -> None:
        session = await new_session(backend)
        await backend.import_entries(session.id, [], leaf=None)
        assert (await session_info(backend, session.id)).active_us == session.created_us
        old = await backend.import_session(NewSession(), [placed(user(), "a", at_us=-7)], leaf="a")
        assert old.active_us == -7
        assert (await backend.verify()).problems == []

    async def test_sessions_are_listed_by_it(self, backend: Backend) -> None:
        first, second = await new_session(backend, user()), await new_session(backend, user())
        old = await backend.import_session(NewSession(), [placed(user(), "a", at_us=7)], leaf="a")
        await backend.update_session(first.id, title="changed last")
        for descending, expected in ((True, [second, first, old]), (False, [old, first, second])):
            page = await backend.list_sessions(
                scope=None, kind=None, limit=9, cursor=None, ordering=Ordering("activity", descending)
            )
            assert [info.id for info in page.sessions] == [info.id for info in expected]


class ListingContract:
    """Sessions are listed in every order, page by page, and filtered, as the store in memory does it."""

    async def test_every_order_is_that_of_the_model_in_both_directions(self, backend: Backend) -> None:
        await make_sessions(backend)
        model = await made_in_memory()
        for order in ORDERS:
            for descending in (True, False):
                ordering = Ordering(order, descending)
                found = await every_page(backend, ordering)
                assert [info.id for info in found] == [info.id for info in await every_page(model, ordering)], ordering
                values = [(sort_value(info, order), info.id) for info in found]
                assert values == sorted(values, reverse=descending), ordering
                assert len({value for value, _ in values}) > 3

    async def test_pages_join_without_a_gap_in_every_order(self, backend: Backend) -> None:
        await make_sessions(backend)
        for order in ORDERS:
            for descending in (True, False):
                whole = await every_page(backend, Ordering(order, descending))
                assert await every_page(backend, Ordering(order, descending), limit=4) == whole

    async def test_sessions_are_in_the_order_of_their_last_activity_to_the_microsecond(self, backend: Backend) -> None:
        slot = 1 << SLOT_BITS
        start = START_US // slot * slot
        offsets = (0, slot - 1, 1, slot, -1, slot + 1, 2, -slot, slot - 1, 3 * slot, 0)
        made = [await backend.create_session(NewSession(created_us=start + offset)) for offset in offsets]
        for number, at in ((0, start + 1), (1, start - 2 * slot), (2, start + slot), (2, start + 2), (7, start + 7)):
            entry = replace(user("."), created_us=at)
            await backend.import_entries(made[number].id, [entry], leaf=None)
        times = {made[number].id: start + offset for number, offset in enumerate(offsets)}
        times |= {made[0].id: start + 1, made[1].id: start - 2 * slot, made[2].id: start + slot, made[7].id: start + 7}
        numbers = {info.id: number for number, info in enumerate(made)}
        for descending in (True, False):
            expected = sorted(times, key=lambda each: (times[each], numbers[each]), reverse=descending)
            for limit in (100, 1, 3):
                found = await every_page(backend, Ordering("activity", descending), limit=limit)
                assert [info.id for info in found] == expected
                assert [info.active_us for info in found] == [times[each] for each in expected]
        assert (await backend.verify()).problems == []

    async def test_every_filter_finds_what_the_model_finds(self, backend: Backend) -> None:
        await make_sessions(backend)
        model = await made_in_memory()
        for number, where in enumerate(WHERES):
            ordering = Ordering(ORDERS[number % len(ORDERS)], descending=number % 2 == 0)
            found = await every_page(backend, ordering, where, limit=6)
            assert found == [info for info in await every_page(backend, ordering) if where.matches(info)], where
            in_memory = await every_page(model, ordering, where)
            assert [info.id for info in found] == [info.id for info in in_memory], where

    async def test_what_no_store_can_hold_is_found_nowhere(self, backend: Backend) -> None:
        await make_sessions(backend)
        for text in ("\0", "\ud800"):
            for where in (SessionFilter(title=text), SessionFilter(key=text), SessionFilter(cwd=text)):
                assert await every_page(backend, Ordering(), where) == []

    async def test_scope_and_kind_go_with_every_order(self, backend: Backend) -> None:
        await make_sessions(backend)
        for order in ORDERS:
            everything = await every_page(backend, Ordering(order))
            page = await backend.list_sessions(
                scope="other", kind="root", limit=100, cursor=None, ordering=Ordering(order)
            )
            assert list(page.sessions) == [info for info in everything if (info.scope, info.kind) == ("other", "root")]

    async def test_a_cursor_of_another_order_is_refused(self, backend: Backend) -> None:
        for _ in range(3):
            await new_session(backend)
        orders: tuple[SessionOrder, ...] = ("updated", "title", "cost")
        async with unchanged(backend):
            for ordering, other in product(map(Ordering, orders), starmap(Ordering, product(ORDERS, (True, False)))):
                page = await backend.list_sessions(scope=None, kind=None, limit=2, cursor=None, ordering=ordering)
                if other == ordering:
                    continue
                with naming(ordering, other), pytest.raises(InvalidArgument):
                    await backend.list_sessions(scope=None, kind=None, limit=2, cursor=page.next_cursor, ordering=other)

    async def test_a_session_that_comes_later_is_met_where_it_belongs(self, backend: Backend) -> None:
        for number in range(4):
            await new_session(backend, *talk(2 * number + 2))
        ordering = Ordering("messages", descending=False)
        first = await backend.list_sessions(scope=None, kind=None, limit=2, cursor=None, ordering=ordering)
        await new_session(backend, *talk(1))
        new = await new_session(backend, *talk(7))
        second = await backend.list_sessions(
            scope=None, kind=None, limit=9, cursor=first.next_cursor, ordering=ordering
        )
        assert [info.message_count for info in first.sessions + second.sessions] == [2, 4, 6, 7, 8]
        assert new in second.sessions

    async def test_scopes_and_their_beginnings_are_found_in_every_order(self, backend: Backend) -> None:
        last = "user\U0010ffff"
        scopes = ("", "user", "user-1", "user-1", "user-2", last, f"{last}\U0010ffffz", "usf", "ä", "%")
        for number, scope in enumerate(scopes):
            session = await backend.create_session(NewSession(scope=scope, title=str(number % 3)))
            await add(backend, session.id, *talk(number % 4))
        asked = (
            SessionFilter(scopes=("user-1", "ä", "nobody", "\0", "\ud800")), SessionFilter(scopes=()),
            SessionFilter(scopes=("", "user-2")), SessionFilter(scope_prefix="user"), SessionFilter(scope_prefix=""),
            SessionFilter(scope_prefix="user-"), SessionFilter(scope_prefix="user\U0010ffff"),
            SessionFilter(scope_prefix="%"), SessionFilter(scope_prefix="u", scopes=("usf", "ä"), title="1"),
        )  # fmt: skip
        for order in ORDERS:
            everything = await every_page(backend, Ordering(order))
            for where in asked:
                expected = [info for info in everything if where.matches(info)]
                assert await every_page(backend, Ordering(order), where, limit=2) == expected, where
        assert [len(await every_page(backend, Ordering(), where)) for where in asked] == [3, 0, 2, 6, 10, 3, 2, 1, 1]
        page = await backend.list_sessions(scope="user-1", kind=None, limit=9, cursor=None, where=asked[0])
        assert {info.scope for info in page.sessions} == {"user-1"}
        assert await every_page(backend, Ordering(), SessionFilter(scope_prefix="\ud800")) == []

    async def test_metadata_are_compared_as_json_compares_them(self, backend: Backend) -> None:
        made: tuple[dict[str, object], ...] = (
            {"user": "ada", "n": 1}, {"user": "ada", "n": 1.0}, {"user": "ada", "n": True}, {"user": "Ada"},
            {"nested": {"user": "ada", "n": 1}}, {"user": None}, {"user": ["ada"]}, {},
            {"user": 'a"d\\a', 'ä"': "\x7f"}, {"user": "\u0000"}, {"text": '"user":"ada"'},
            {"user": "ada", "n": False, "x": "日本"},
        )  # fmt: skip
        texts = [encode_json(metadata, "metadata")[0] for metadata in made]
        numbers = {
            (await backend.create_session(NewSession(metadata_text=text))).id: number
            for number, text in enumerate(texts)
        }
        asked: list[tuple[tuple[tuple[str, Scalar], ...], set[int]]] = [
            ((("user", "ada"),), {0, 1, 2, 11}),
            ((("n", 1),), {0}),
            ((("n", 1.0),), {1}),
            ((("n", True),), {2}),
            ((("n", False),), {11}),
            ((("user", "ada"), ("n", 1)), {0}),
            ((("user", "ada"), ("x", "日本")), {11}),
            ((("user", None),), {5}),
            ((("user", 'a"d\\a'), ('ä"', "\x7f")), {8}),
            ((("user", "\u0000"),), {9}),
            ((("nobody", None),), set()),
            ((), set(range(len(made)))),
        ]
        for pairs, expected in asked:
            where = SessionFilter(metadata=pairs)
            for order in ORDERS:
                found = await every_page(backend, Ordering(order), where, limit=2)
                assert {numbers[info.id] for info in found} == expected, pairs
                assert len(found) == len(expected)
                assert found == [info for info in await every_page(backend, Ordering(order)) if where.matches(info)]

    async def test_metadata_that_few_have_are_found_behind_many_that_others_have(self, backend: Backend) -> None:
        for number in range(600):
            text = f'{{"number":{number},"even":{"true" if number % 2 == 0 else "false"}}}'
            await backend.create_session(NewSession(metadata_text=text))
        for number in (0, 299, 599):
            (one,) = await every_page(backend, Ordering(), SessionFilter(metadata=(("number", number),)))
            assert one.metadata["number"] == number
        where = SessionFilter(metadata=(("even", True),))
        found = await every_page(backend, Ordering("created", descending=False), where, limit=170)
        assert [info.metadata["number"] for info in found] == list(range(0, 600, 2))

    # -- titles -------------------------------------------------------------------------------------------------

    async def test_a_title_that_was_given_beats_one_that_was_made_whichever_came_later(self, backend: Backend) -> None:
        session = await new_session(backend, user("How it begins"))
        assert session.shown_title == "How it begins"
        assert (await backend.update_session(session.id, auto_title="Made")).shown_title == "Made"
        assert (await backend.update_session(session.id, title="Given")).shown_title == "Given"
        assert (await backend.update_session(session.id, auto_title="Made again")).shown_title == "Given"
        assert (await backend.update_session(session.id, title=None)).shown_title == "Made again"
        assert (await backend.update_session(session.id, title="", auto_title=None)).shown_title == "How it begins"
        info = await session_info(backend, session.id)
        assert (info.title, info.auto_title) == ("", None)

    async def test_a_made_title_counts_one_revision_and_nothing_else(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        updated = await backend.update_session(session.id, auto_title="Made")
        expected = replace(session, auto_title="Made", revision=2, updated_us=updated.updated_us)
        assert updated == expected == await session_info(backend, session.id)

    async def test_a_session_may_be_created_with_a_made_title(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession(auto_title="Made"))
        fork = await backend.fork(session.id, None, NewSession(auto_title="Made, too"))
        assert (session.auto_title, session.title, fork.auto_title) == ("Made", None, "Made, too")
        assert await session_info(backend, fork.id) == fork

    # -- metadata -----------------------------------------------------------------------------------------------

    async def test_metadata_are_edited_as_they_are_stored(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession(metadata_text='{"a":1}'))
        seen: list[str] = []

        def edit(stored: str) -> str:
            seen.append(stored)
            return '{"b":2}'

        assert (await backend.update_session(session.id, metadata_text=edit)).metadata == {"b": 2}
        assert set(seen) == {'{"a":1}'}

    async def test_an_edit_that_raises_changes_nothing(self, backend: Backend) -> None:
        session = await backend.create_session(NewSession(metadata_text='{"a":1}'))

        def edit(_: str) -> str:
            raise InvalidArgument("metadata: too large")

        await refusal(backend, InvalidArgument, backend.update_session(session.id, title="new", metadata_text=edit))
        assert (await session_info(backend, session.id)).title is None


class ReusedIdContract:
    """A handle to a deleted session never reaches a later session of the same id."""

    async def _used_again(self, backend: Backend) -> tuple[SessionRef, SessionInfo]:
        old = await backend.create_session(NewSession(id="again"))
        await add(backend, old.id, user("old"))
        await backend.delete_tree(old.id)
        new = await backend.create_session(NewSession(id="again"))
        await add(backend, new.id, user("new"))
        return old.ref, new

    async def test_no_use_of_a_deleted_session_reaches_the_one_that_has_its_id(self, backend: Backend) -> None:
        old, new = await self._used_again(backend)
        (entry,) = await path_ids(backend, new.id)
        before = await store_snapshot(backend)
        reached = []
        for name, use in USES.items():
            try:
                await use(backend, old, entry)
                reached.append(name)
            except SessionNotFound as error:
                assert "'again' was deleted, and its id has been used again" in str(error), name  # noqa: PT017
        assert reached == []
        assert await store_snapshot(backend) == before

    async def test_the_one_that_has_the_id_now_is_reached(self, backend: Backend) -> None:
        _, new = await self._used_again(backend)
        (entry,) = await path_ids(backend, new.ref)
        for name in ("title", "append", "path", "context", "usage since", "label", "budget", "task", "watch"):
            await USES[name](backend, new.ref, entry)

    async def test_deleting_it_again_deletes_nothing(self, backend: Backend) -> None:
        old, new = await self._used_again(backend)
        before = await store_snapshot(backend)
        assert (await backend.plan_deletion([old], None)).session_ids == ()
        assert (await backend.delete_tree(old)).session_ids == ()
        assert await store_snapshot(backend) == before
        assert (await backend.delete_tree(new.ref)).session_ids == ("again",)

    async def test_the_ledger_tells_what_each_of_them_has_paid(self, backend: Backend) -> None:
        old = await backend.create_session(NewSession(id="again"))
        await backend.record_call(old.ref, PaidCall(UsageTotals(input=1), call_id="one"))
        await backend.delete_tree(old.ref)
        new = await backend.create_session(NewSession(id="again"))
        await backend.record_call(new.ref, PaidCall(UsageTotals(input=2), call_id="two"))
        task = await backend.create_task(new.ref, "t", NewSession())
        await backend.record_call(task.ref, PaidCall(UsageTotals(input=4), call_id="four"))

        async def tokens(query: LedgerQuery) -> int:
            return (await backend.read_ledger(query)).total.total_tokens

        each = (old.ref, new.ref, "again")
        assert [await tokens(LedgerQuery(name)) for name in each] == [1, 2, 3]
        assert [await tokens(LedgerQuery(name, tasks=True)) for name in each] == [1, 6, 7]
        assert [await tokens(LedgerQuery(name, tree=True)) for name in each] == [1, 2, 3]
        several = ((old.ref,), (new.ref, task.ref), (old.ref, new.ref))
        assert [await tokens(LedgerQuery(session_ids=names)) for names in several] == [1, 6, 3]

    async def test_every_way_to_a_session_names_the_same_one(self, backend: Backend) -> None:
        made = await backend.create_session(NewSession(id="one", key="k"))
        page = await backend.list_sessions(scope=None, kind=None, limit=10, cursor=None)
        found = [await backend.get_session("one"), await backend.get_session_by_key("k", ""), *page.sessions]
        assert {info.ref.session_key for info in found if info is not None} == {made.ref.session_key}
        fork = await backend.fork("one", None, NewSession())
        task = await backend.create_task("one", "t", NewSession())
        for info in (fork, task):
            again = existing(await backend.get_session(info.id))
            assert (again.ref, again.ref.session_key) == (info.ref, info.ref.session_key)
